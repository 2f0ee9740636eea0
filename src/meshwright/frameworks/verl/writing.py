"""A job as verl's overrides: the parallel and batch part of an actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import Expressed, framework
from meshwright.frameworks.inverse import launch_of, lost, unsaid
from meshwright.frameworks.megatron_lm.layout import written_layout
from meshwright.frameworks.verl.meaning import ACTOR, MODEL, ROLLOUT
from meshwright.plan.plan import ContextParallel, Precision, Recompute, RecomputeModule, Schedule
from meshwright.plan.stages import chunk_layers
from meshwright.plan.words import word

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_REASONS = {
    "param_bytes": "FSDP holds parameters in fp32 or bf16, Megatron bf16 with fp32 copies",
    "master_weights": "FSDP casts what it gathers, Megatron holds fp32 copies",
    "recompute_modules": "FSDP recomputes whole layers, or nothing",
    "dp_replicate": "replicas of a sharding group are FSDP's alone",
}
_MODULES = {
    int(RecomputeModule.CORE_ATTENTION): "core_attn",
    int(RecomputeModule.MLP): "mlp",
    int(RecomputeModule.NORM): "layernorm",
    int(RecomputeModule.MOE_ACTIVATION): "moe_act",
    int(RecomputeModule.MOE): "moe",
    int(RecomputeModule.SHARED_EXPERTS): "shared_experts",
    int(RecomputeModule.MLA_UP_PROJECTION): "mla_up_proj",
}
_NARROW = 2


def express(job: Job, version: str) -> Expressed:
    """The overrides that state a job, what they do not say, and what verl cannot run."""
    plan = job.plan.row(0)
    sharded = plan.zero_stage == 3
    refused = _refused(plan, fsdp=sharded)
    settings = {
        **_batch(job, plan),
        **(_fsdp(plan, job) if sharded else _megatron(job, plan)),
    }
    own = framework("verl")
    gone = unsaid(own, version, settings, job, but_not=refused)
    return Expressed(
        settings=settings,
        launch=launch_of(job),
        lost=lost(gone, _REASONS, "verl"),
        refused=refused,
    )


def _refused(plan: Plan, *, fsdp: bool) -> dict[str, str]:
    """Why verl cannot run the plan at all."""
    found: dict[str, str] = {}
    if int(plan.precision) not in (int(Precision.BF16), int(Precision.FP16)):
        found["precision"] = "actors train in bf16 or fp16"
    if plan.pp > 1 and plan.schedule != int(Schedule.ONE_F_ONE_B):
        found["schedule"] = f"pipelines run 1F1B, not {word('schedule', plan.schedule)}"
    if fsdp:
        for name in ("tp", "pp", "ep"):
            if getattr(plan, name) > 1:
                found[name] = "FSDP shards parameters only; Megatron shards no parameters"
        if plan.cp > 1 and plan.context_parallel != int(ContextParallel.ULYSSES):
            found["context_parallel"] = "sequences are shared over heads (Ulysses)"
    elif plan.zero_stage == _NARROW:
        found["zero_stage"] = "Megatron's distributed optimizer is stage 1"
    return found


def _batch(job: Job, plan: Plan) -> dict[str, Any]:
    work = job.workload
    nodes = -(-job.cluster.num_gpus // max(job.cluster.gpus_per_node, 1))
    half = work.seq_len // 2
    settings: dict[str, Any] = {
        "data.train_batch_size": work.global_batch_size,
        "data.max_prompt_length": half,
        "data.max_response_length": work.seq_len - half,
        ACTOR + "ppo_mini_batch_size": work.global_batch_size,
        ACTOR + "ppo_micro_batch_size_per_gpu": int(plan.micro_batch_size),
        ROLLOUT + "n": 1,
        MODEL + "path": job.model.name,
        "trainer.n_gpus_per_node": job.cluster.num_gpus // nodes,
        "trainer.nnodes": nodes,
    }
    if work.recipe.learning_rate is not None:
        settings[ACTOR + "optim.lr"] = work.recipe.learning_rate
    if plan.lora_rank:
        settings[MODEL + "lora_rank"] = int(plan.lora_rank)
    return settings


def _fsdp(plan: Plan, job: Job) -> dict[str, Any]:
    f = ACTOR + "fsdp_config."
    settings: dict[str, Any] = {
        ACTOR + "strategy": "fsdp2",
        ACTOR + "ulysses_sequence_parallel_size": int(plan.cp),
        f + "reshard_after_forward": bool(plan.reshard_after_forward),
        f + "model_dtype": "bfloat16" if plan.param_bytes == _NARROW else "fp32",
        MODEL + "enable_gradient_checkpointing": plan.recompute == int(Recompute.FULL),
    }
    if plan.precision == int(Precision.FP16):
        settings[f + "dtype"] = "float16"
    if plan.dp_replicate > 1:
        settings[f + "fsdp_size"] = job.cluster.num_gpus // int(plan.dp_replicate)
    if plan.offload_params and plan.offload_optimizer == 1:
        settings[f + "offload_policy"] = True
    return settings


def _megatron(job: Job, plan: Plan) -> dict[str, Any]:
    m = ACTOR + "megatron."
    settings: dict[str, Any] = {
        ACTOR + "strategy": "megatron",
        m + "tensor_model_parallel_size": int(plan.tp),
        m + "pipeline_model_parallel_size": int(plan.pp),
        m + "context_parallel_size": int(plan.cp),
        m + "expert_model_parallel_size": int(plan.ep),
        m + "expert_tensor_parallel_size": int(plan.etp),
        m + "sequence_parallel": bool(plan.sequence_parallel),
        m + "use_distributed_optimizer": bool(plan.zero_stage),
    }
    if plan.precision == int(Precision.FP16):
        settings[m + "dtype"] = "float16"
    ddp = m + "override_ddp_config."
    if plan.grad_bytes == _NARROW:
        settings[ddp + "grad_reduce_in_fp32"] = False
    for name in ("overlap_grad_reduce", "overlap_param_gather"):
        if getattr(plan, name) and plan.dp * plan.cp > 1:
            settings[ddp + name] = True
    inner = m + "override_transformer_config."
    return settings | _stages(job, plan, m) | _recompute(plan, inner)


def _stages(job: Job, plan: Plan, m: str) -> dict[str, Any]:
    """Virtual stages, and layers of the ends or of every stage where they are not equal."""
    if plan.pp == 1:
        return {}
    inner = m + "override_transformer_config."
    settings: dict[str, Any] = {}
    ends = {"first": int(plan.first_stage_layers), "last": int(plan.last_stage_layers)}
    slots = {
        "account_for_embedding_in_pipeline_split": bool(plan.embedding_in_split),
        "account_for_loss_in_pipeline_split": bool(plan.loss_in_split),
    }
    chunks = [int(n) for n in chunk_layers(job.model, plan)]
    even = len({*chunks}) == 1
    if not even and plan.layout is None and (any(ends.values()) or any(slots.values())):
        for end, count in ends.items():
            if count:
                settings[f"{inner}num_layers_in_{end}_pipeline_stage"] = count
        settings |= {inner + name: True for name, on in slots.items() if on}
    elif not even:
        mtp = sum(run.count for run in job.model.mtp)
        return {inner + "pipeline_model_parallel_layout": written_layout(chunks, mtp=mtp)}
    if plan.vpp > 1:
        settings[m + "virtual_pipeline_model_parallel_size"] = int(plan.vpp)
    return settings


def _recompute(plan: Plan, prefix: str) -> dict[str, Any]:
    if plan.recompute == int(Recompute.NONE):
        return {}
    if plan.recompute == int(Recompute.SELECTIVE):
        modules = [name for bit, name in _MODULES.items() if int(plan.recompute_modules) & bit]
        return {
            prefix + "recompute_granularity": "selective",
            prefix + "recompute_modules": modules,
        }
    whole = plan.recompute_layers == 0
    return {
        prefix + "recompute_granularity": "full",
        prefix + "recompute_method": "uniform" if whole or plan.recompute_uniform else "block",
        prefix + "recompute_num_layers": 1 if whole else int(plan.recompute_layers),
    }
