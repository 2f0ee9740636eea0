"""A job as an axolotl file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import Expressed
from meshwright.frameworks.hugging_face.adapters import ATTENTION
from meshwright.frameworks.hugging_face.widths import kind_of
from meshwright.frameworks.hugging_face.writing import (
    REASONS,
    Mesh,
    fsdp_settings,
    half_of,
    mesh_settings,
    optimizer_name,
    recomputes,
    refusals,
    runs_by,
    steps_of,
    zero_inline,
)
from meshwright.frameworks.inverse import launch_of, lost, unsaid
from meshwright.plan.plan import Optimizer

if TYPE_CHECKING:
    from meshwright.frameworks.framework import Framework
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

MESH = Mesh(
    replicate="dp_replicate_size",
    shard="dp_shard_size",
    tp="tensor_parallel_size",
    cp="context_parallel_size",
    ep="expert_parallel_size",
    experts_beside=True,
)
_REASONS = {
    **REASONS,
    "param_bytes": "replicated weights have 16 bits, FSDP's shards are fp32",
    "context_parallel": "context parallelism is ring attention",
}


def write(own: Framework, job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what axolotl cannot run."""
    plan = job.plan.row(0)
    refused = refusals(plan, MESH, own.title)
    settings = {**_trained(job, plan), **_adapters(plan), **_run(plan), **mesh_settings(plan, MESH)}
    gone = unsaid(own, version, settings, job, but_not=refused)
    return Expressed(
        settings=settings,
        launch=launch_of(job),
        lost=lost(gone, _REASONS, own.title),
        refused=refused,
    )


def _trained(job: Job, plan: Plan) -> dict[str, Any]:
    muon = plan.optimizer == int(Optimizer.MUON)
    settings: dict[str, Any] = {
        "base_model": job.model.name,
        "sequence_len": int(job.workload.seq_len),
        "micro_batch_size": int(plan.micro_batch_size),
        "gradient_accumulation_steps": steps_of(job),
        "gradient_checkpointing": recomputes(plan),
        "liger_fused_linear_cross_entropy": bool(plan.fused_loss),
        "optimizer": "muon" if muon else optimizer_name(plan),
        "attn_implementation": "flash_attention_2" if plan.flash_attention else "eager",
    }
    if plan.offload_activations and recomputes(plan):
        settings["activation_offloading"] = True
    if plan.compile:
        settings["torch_compile"] = True
    rate = job.workload.recipe.learning_rate
    if rate is not None:
        settings["learning_rate"] = rate
    interval = job.workload.loading.checkpoint_interval_steps
    return settings | ({"save_steps": interval} if interval else {})


def _adapters(plan: Plan) -> dict[str, Any]:
    if not plan.lora_rank:
        return {}
    bits = int(plan.base_weight_bits)
    settings: dict[str, Any] = {
        "adapter": "qlora" if bits == 4 else "lora",
        "lora_r": int(plan.lora_rank),
    }
    if plan.lora_all_linear:
        settings["lora_target_linear"] = True
    else:
        settings["lora_target_modules"] = list(ATTENTION)
    return settings | ({f"load_in_{bits}bit": True} if bits in (4, 8) else {})


def _run(plan: Plan) -> dict[str, Any]:
    half, by = half_of(plan), runs_by(plan)
    settings: dict[str, Any] = {"bf16": half == "bf16"}
    if half == "fp16":
        settings["fp16"] = True
    if kind_of(plan) == "single":
        settings["float32"] = True
    if by == "deepspeed":
        return settings | zero_inline(plan, "deepspeed.")
    if by == "fsdp":
        if half == "bf16" and kind_of(plan) == "pure":
            settings["bf16"] = "full"
        settings |= {"fsdp_version": 2}
        settings |= fsdp_settings(plan, "fsdp_config.", offload="offload_params")
    return settings
