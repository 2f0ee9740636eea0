"""A job in nanotron's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import Expressed, framework
from meshwright.frameworks.inverse import launch_of, lost, shape_of, unsaid
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import ContextParallel, Precision, Recompute, Schedule
from meshwright.plan.words import word

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_DTYPES = {
    int(Precision.BF16): "bfloat16",
    int(Precision.FP16): "float16",
    int(Precision.FP32): "float32",
}
_REASONS = {
    "zero_stage": "only optimizer states are sharded",
    "recompute_modules": "whole layers are recomputed, or nothing",
    "recompute_layers": "all layers are recomputed, or none",
    "vpp": "pipeline engines hold one chunk a rank",
    "layout": "blocks are placed by their cost",
    "grad_bytes": "gradients are summed in fp32, or in the dtype of the weights",
    "master_weights": "fp32 copies come with fp32 accumulation",
}
_SHAPE = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "vocab_size", "tie_word_embeddings"),
)


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what nanotron cannot run."""
    plan = job.plan.row(0)
    refused = _refused(plan)
    settings = {
        **_model(job, plan),
        **_optimizer(job, plan),
        **_mesh(plan),
        **_tokens(job, plan),
        **_checkpoints(job),
    }
    own = framework("nanotron")
    gone = unsaid(own, version, settings, job, but_not=refused)
    return Expressed(
        settings=settings,
        launch=launch_of(job),
        lost=lost(gone, _REASONS, "nanotron"),
        refused=refused,
    )


def _refused(plan: Plan) -> dict[str, str]:
    """Why nanotron cannot run the plan at all."""
    found: dict[str, str] = {}
    if plan.pp > 1 and plan.schedule not in (int(Schedule.ONE_F_ONE_B), int(Schedule.GPIPE)):
        name = word("schedule", plan.schedule)
        found["schedule"] = f"its engines are 1f1b and afab, not {name}"
    if plan.pp > 1 and plan.vpp > 1:
        found["vpp"] = _REASONS["vpp"]
    if plan.cp > 1 and plan.context_parallel != int(ContextParallel.RING):
        found["context_parallel"] = "context parallelism is ring attention"
    if int(plan.precision) not in _DTYPES:
        found["precision"] = "weights and products are bf16, fp16 or fp32"
    if plan.lora_rank:
        found["lora_rank"] = "every parameter trains"
    if plan.zero_stage == 3 and plan.dp * plan.cp > 1:
        found["zero_stage"] = "parameters are never sharded over data-parallel ranks"
    return found


def _model(job: Job, plan: Plan) -> dict[str, Any]:
    shape = shape_of(job.model)
    settings: dict[str, Any] = {
        f"model.model_config.{name}": shape[name] for name in _SHAPE if name in shape
    }
    if "num_experts" in shape:
        for name in ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"):
            if name in shape:
                settings[f"model.model_config.moe_config.{name}"] = shape[name]
        settings["model.model_config.moe_config.top_k"] = shape["num_experts_per_tok"]
    settings["model.model_config.max_position_embeddings"] = job.workload.seq_len
    settings["model.dtype"] = _DTYPES.get(int(plan.precision), "bfloat16")
    return settings


def _optimizer(job: Job, plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "optimizer.zero_stage": min(int(plan.zero_stage), 1),
        "optimizer.accumulate_grad_in_fp32": bool(plan.master_weights or plan.grad_bytes == 4),
        "optimizer.optimizer_factory.name": "adamW",
    }
    rate = job.workload.recipe.learning_rate
    if rate is not None:
        settings["optimizer.learning_rate_scheduler.learning_rate"] = rate
    return settings


def _mesh(plan: Plan) -> dict[str, Any]:
    p = "parallelism."
    settings: dict[str, Any] = {
        p + "dp": int(plan.dp),
        p + "pp": int(plan.pp),
        p + "tp": int(plan.tp),
        p + "pp_engine": "afab" if plan.schedule == int(Schedule.GPIPE) else "1f1b",
        p + "tp_mode": "REDUCE_SCATTER" if plan.sequence_parallel else "ALL_REDUCE",
        p + "tp_linear_async_communication": bool(plan.overlap_tp),
        p + "recompute_layer": plan.recompute == int(Recompute.FULL),
    }
    if plan.cp > 1:
        settings[p + "context_parallel_size"] = int(plan.cp)
    if plan.ep > 1:
        settings[p + "expert_parallel_size"] = int(plan.ep)
    return settings


def _tokens(job: Job, plan: Plan) -> dict[str, Any]:
    work = job.workload
    settings: dict[str, Any] = {
        "tokens.sequence_length": work.seq_len,
        "tokens.micro_batch_size": int(plan.micro_batch_size),
        "tokens.batch_accumulation_per_replica": max(int(num_microbatches(job)), 1),
    }
    if work.train_tokens:
        per_step = work.global_batch_size * work.seq_len
        settings["tokens.train_steps"] = max(round(work.train_tokens / per_step), 1)
    return settings


def _checkpoints(job: Job) -> dict[str, Any]:
    interval = job.workload.loading.checkpoint_interval_steps
    return {} if not interval else {"checkpoints.checkpoint_interval": interval}
