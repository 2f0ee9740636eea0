"""A job in PaddleNLP's training arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import Expressed, framework
from meshwright.frameworks.inverse import launch_of, lost, unsaid
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import ContextParallel, Precision, Recompute, RecomputeModule, Schedule
from meshwright.plan.stages import chunk_layers
from meshwright.plan.words import word

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_REASONS = {
    "reshard_after_forward": "stage 3 always frees what it gathered",
    "recompute_modules": "recompute covers whole layers or attention",
    "recompute_layers": "recompute covers all layers",
}
_16_BIT = {int(Precision.BF16): "bf16", int(Precision.FP16): "fp16"}


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job, what they do not say, and what PaddleNLP cannot run."""
    plan = job.plan.row(0)
    refused = _refused(job, plan)
    settings = {**_mesh(plan), **_batch(job, plan), **_precision(plan), **_switches(plan)}
    settings |= _adapters(plan)
    own = framework("paddlenlp")
    gone = unsaid(own, version, settings, job, but_not=refused)
    return Expressed(
        settings={"model_name_or_path": job.model.name, **settings},
        launch=launch_of(job),
        lost=lost(gone, _REASONS, "PaddleNLP"),
        refused=refused,
    )


def _is_even(job: Job) -> bool:
    """Whether every chunk holds as many layers, or one less at the end."""
    return len({*chunk_layers(job.model, job.plan.row(0))}) == 1


def _refused(job: Job, plan: Plan) -> dict[str, str]:
    """Why PaddleNLP cannot run the plan at all."""
    found: dict[str, str] = {}
    if plan.pp > 1 and plan.zero_stage >= 2:
        found["zero_stage"] = "sharding stages 2 and 3 do not run with a pipeline"
    if plan.pp > 1 and plan.schedule != int(Schedule.ONE_F_ONE_B):
        found["schedule"] = f"pipelines run 1F1B, not {word('schedule', plan.schedule)}"
    if int(plan.precision) not in (*_16_BIT, int(Precision.FP32)):
        found["precision"] = "arithmetic is bf16, fp16 or fp32"
    if plan.ep not in (1, int(plan.dp)):
        found["ep"] = "experts are spread over all data-parallel ranks, or not at all"
    if plan.pp > 1 and not _is_even(job):
        found["layout"] = "a pipeline's stages hold equal numbers of layers"
    gathered = int(ContextParallel.ALL_GATHER)
    if plan.cp > 1 and plan.context_parallel == gathered:
        found["context_parallel"] = "sequences are shared over heads or in a ring"
    return found


def _mesh(plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "tensor_parallel_degree": int(plan.tp),
        "pipeline_parallel_degree": int(plan.pp),
        "sequence_parallel": bool(plan.sequence_parallel),
    }
    if plan.ep > 1:
        settings["use_expert_parallel"] = True
    if plan.vpp > 1:
        settings["virtual_pp_degree"] = int(plan.vpp)
    if plan.cp > 1:
        inner = {int(ContextParallel.ULYSSES): plan.cp, int(ContextParallel.RING): 1}
        sep = int(inner.get(int(plan.context_parallel), plan.cp_inner))
        settings["sep_parallel_degree"] = sep
        settings["context_parallel_degree"] = int(plan.cp) // max(sep, 1)
    replicas = int(plan.dp_replicate) if plan.zero_stage else int(plan.dp)
    if plan.zero_stage:
        text = f"stage{int(plan.zero_stage)}"
        settings["sharding"] = text + (" offload" if plan.offload_optimizer == 1 else "")
    settings["sharding_parallel_degree"] = max(int(plan.dp) // max(replicas, 1), 1)
    settings["data_parallel_degree"] = replicas
    return settings


def _adapters(plan: Plan) -> dict[str, Any]:
    return {"lora": True, "lora_rank": int(plan.lora_rank)} if plan.lora_rank else {}


def _batch(job: Job, plan: Plan) -> dict[str, Any]:
    work = job.workload
    settings: dict[str, Any] = {
        "per_device_train_batch_size": int(plan.micro_batch_size),
        "gradient_accumulation_steps": max(int(num_microbatches(job)), 1),
        "max_seq_length": work.seq_len,
        "use_flash_attention": bool(plan.flash_attention),
    }
    if work.train_tokens:
        per_step = work.global_batch_size * work.seq_len
        settings["max_steps"] = max(round(work.train_tokens / per_step), 1)
    if work.recipe.learning_rate is not None:
        settings["learning_rate"] = work.recipe.learning_rate
    return settings


def _precision(plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if (flag := _16_BIT.get(int(plan.precision))) is not None:
        settings[flag] = True
        settings["fp16_opt_level"] = "O2" if plan.master_weights else "O1"
        if plan.master_weights:
            settings["amp_master_grad"] = bool(plan.grad_bytes == 4)
    settings["recompute"] = plan.recompute != int(Recompute.NONE)
    if plan.recompute == int(Recompute.SELECTIVE):
        attention = bool(plan.recompute_modules & int(RecomputeModule.CORE_ATTENTION))
        settings["recompute_granularity"] = "core_attn" if attention else "full"
    return settings


def _switches(plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    pipeline = ["enable_overlap_p2p_comm"] if plan.overlap_pp and plan.pp > 1 else []
    sharding = []
    if plan.overlap_grad_reduce and plan.dp > 1:
        stage = int(plan.zero_stage)
        if plan.overlap_param_gather and stage in (1, 2):
            sharding.append(f"enable_stage{stage}_overlap")
        else:
            axis = "sharding" if stage else "dp"
            pipeline.append(f"enable_{axis}_comm_overlap")
    if pipeline:
        settings["pipeline_parallel_config"] = " ".join(pipeline)
    if sharding:
        settings["sharding_parallel_config"] = " ".join(sharding)
    if plan.overlap_tp and plan.tp > 1:
        settings["tensor_parallel_config"] = "enable_mp_async_allreduce"
    return settings
