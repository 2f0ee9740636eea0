"""A job as a LLaMA-Factory file."""

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

MESH = Mesh()
_ELSEWHERE = " on transformers; its back end of mcore_adapter (USE_MCA=1) is not written"
_REASONS = {
    **REASONS,
    "param_bytes": "what trains is kept in fp32, unless pure_bf16; frozen weights have 16 bits",
    "compile": "torch_compile is the trainer's",
}


def write(own: Framework, job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what cannot be run."""
    plan = job.plan.row(0)
    refused = refusals(plan, MESH, own.title, elsewhere=_ELSEWHERE)
    settings = {**_trained(job, plan), **_tuning(plan), **_run(plan), **mesh_settings(plan, MESH)}
    gone = unsaid(own, version, settings, job, but_not=refused)
    return Expressed(
        settings=settings,
        launch=launch_of(job),
        lost=lost(gone, _REASONS, own.title),
        refused=refused,
    )


def _trained(job: Job, plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "model_name_or_path": job.model.name,
        "stage": "sft",
        "do_train": True,
        "cutoff_len": int(job.workload.seq_len),
        "per_device_train_batch_size": int(plan.micro_batch_size),
        "gradient_accumulation_steps": steps_of(job),
        "disable_gradient_checkpointing": not recomputes(plan),
        "enable_liger_kernel": bool(plan.fused_loss),
        "flash_attn": "auto" if plan.flash_attention else "disabled",
    }
    if plan.optimizer == int(Optimizer.MUON):
        settings["use_muon"] = True
    else:
        settings["optim"] = optimizer_name(plan)
    if plan.offload_activations and recomputes(plan):
        settings["use_unsloth_gc"] = True
    if plan.compile:
        settings["torch_compile"] = True
    rate = job.workload.recipe.learning_rate
    if rate is not None:
        settings["learning_rate"] = rate
    interval = job.workload.loading.checkpoint_interval_steps
    return settings | ({"save_steps": interval} if interval else {})


def _tuning(plan: Plan) -> dict[str, Any]:
    if not plan.lora_rank:
        return {"finetuning_type": "full"}
    settings: dict[str, Any] = {
        "finetuning_type": "lora",
        "lora_rank": int(plan.lora_rank),
        "lora_target": "all" if plan.lora_all_linear else ",".join(ATTENTION),
    }
    bits = int(plan.base_weight_bits)
    return settings | ({"quantization_bit": bits} if bits in (4, 8) else {})


def _run(plan: Plan) -> dict[str, Any]:
    half, by = half_of(plan), runs_by(plan)
    settings: dict[str, Any] = {"bf16": half == "bf16", "fp16": half == "fp16"}
    if kind_of(plan) == "pure" and by != "deepspeed":
        settings |= {"bf16": False, "pure_bf16": True}
    if by == "deepspeed":
        return settings | zero_inline(plan, "deepspeed.")
    if by == "fsdp":
        settings |= {"fsdp": True, "fsdp_config.version": 2}
        settings |= fsdp_settings(plan, "fsdp_config.", offload="cpu_offload")
    return settings
