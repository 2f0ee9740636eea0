"""A job as the arguments of `swift sft`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import Expressed
from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.hugging_face.adapters import ATTENTION
from meshwright.frameworks.hugging_face.writing import (
    REASONS,
    Mesh,
    fsdp_settings,
    half_of,
    optimizer_name,
    recomputes,
    refusals,
    runs_by,
    steps_of,
    zero_inline,
)
from meshwright.frameworks.inverse import launch_of, lost, unsaid
from meshwright.frameworks.ms_swift.launched import launch_by_environment

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_MESH = Mesh(ulysses="sequence_parallel_size")
_ELSEWHERE = " on transformers; ms-swift-megatron has"
_HALVES = {"bf16": "bfloat16", "fp16": "float16"}


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what cannot be run."""
    own = by_name("ms-swift")
    plan = job.plan.row(0)
    refused = refusals(plan, _MESH, own.title, elsewhere=_ELSEWHERE)
    settings = {**_trained(job, plan), **_tuning(plan), **_run(plan)}
    if plan.cp > 1:
        settings["sequence_parallel_size"] = int(plan.cp)
    gone = unsaid(own, version, settings, job)
    gone = {name: pair for name, pair in gone.items() if name not in refused}
    return Expressed(
        settings=settings,
        launch=launch_by_environment(launch_of(job)),
        lost=lost(gone, REASONS, own.title),
        refused=refused,
        program="swift sft" if _masks(job, plan) else "swift pt",
    )


def _masks(job: Job, plan: Plan) -> bool:
    """Whether answers alone are trained on, rather than every token."""
    return bool(job.workload.recipe.masked_loss or plan.lora_rank)


def _trained(job: Job, plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "model": job.model.name,
        "torch_dtype": _HALVES.get(half_of(plan), "float32"),
        "max_length": int(job.workload.seq_len),
        "per_device_train_batch_size": int(plan.micro_batch_size),
        "gradient_accumulation_steps": steps_of(job),
        "gradient_checkpointing": recomputes(plan),
        "attn_impl": "flash_attn" if plan.flash_attention else "eager",
        "optim": optimizer_name(plan),
    }
    if half_of(plan):
        settings[half_of(plan)] = True
    if plan.fused_loss:
        settings["use_liger_kernel"] = True
    if plan.compile:
        settings["torch_compile"] = True
    rate = job.workload.recipe.learning_rate
    if rate is not None:
        settings["learning_rate"] = rate
    interval = job.workload.loading.checkpoint_interval_steps
    return settings | ({"save_steps": interval} if interval else {})


def _tuning(plan: Plan) -> dict[str, Any]:
    if not plan.lora_rank:
        return {"tuner_type": "full"}
    settings: dict[str, Any] = {"tuner_type": "lora", "lora_rank": int(plan.lora_rank)}
    settings["target_modules"] = ["all-linear"] if plan.lora_all_linear else list(ATTENTION)
    bits = int(plan.base_weight_bits)
    return settings | ({"quant_bits": bits, "quant_method": "bnb"} if bits in (4, 8) else {})


def _run(plan: Plan) -> dict[str, Any]:
    by = runs_by(plan)
    if by == "deepspeed":
        return zero_inline(plan, "deepspeed.")
    if by == "fsdp":
        on = {"fsdp": "full_shard auto_wrap", "fsdp_config.version": 2}
        return on | fsdp_settings(plan, "fsdp_config.", offload="cpu_offload")
    return {}
