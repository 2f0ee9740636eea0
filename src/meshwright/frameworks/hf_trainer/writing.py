"""A job as arguments of transformers' trainer (TRL's SFTConfig and ModelConfig included)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import Expressed
from meshwright.frameworks.hugging_face.widths import kind_of
from meshwright.frameworks.hugging_face.writing import (
    HF_MESH,
    REASONS,
    fsdp_settings,
    half_of,
    mesh_settings,
    optimizer_name,
    recomputes,
    refusals,
    runs_by,
    steps_of,
    targets,
    zero_inline,
)
from meshwright.frameworks.inverse import launch_of, lost, unsaid

if TYPE_CHECKING:
    from meshwright.frameworks.framework import Framework
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan


def write(own: Framework, job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what the trainer cannot run."""
    plan = job.plan.row(0)
    refused = refusals(plan, HF_MESH, own.title)
    settings = {**_trained(job, plan), **_adapters(plan), **_run(plan)}
    settings |= mesh_settings(plan, HF_MESH)
    gone = unsaid(own, version, settings, job, but_not=refused)
    return Expressed(
        settings=settings,
        launch=launch_of(job),
        lost=lost(gone, REASONS, own.title),
        refused=refused,
    )


def _trained(job: Job, plan: Plan) -> dict[str, Any]:
    """Model, batch, length, recompute, optimizer."""
    settings: dict[str, Any] = {
        "model_name_or_path": job.model.name,
        "max_length": int(job.workload.seq_len),
        "per_device_train_batch_size": int(plan.micro_batch_size),
        "gradient_accumulation_steps": steps_of(job),
        "gradient_checkpointing": recomputes(plan),
        "use_liger_kernel": bool(plan.fused_loss),
        "optim": optimizer_name(plan),
        "attn_implementation": "sdpa" if plan.flash_attention else "eager",
    }
    if plan.compile:
        settings["torch_compile"] = True
    rate = job.workload.recipe.learning_rate
    if rate is not None:
        settings["learning_rate"] = rate
    workers = job.workload.loading.num_workers
    if workers is not None:
        settings["dataloader_num_workers"] = workers
    interval = job.workload.loading.checkpoint_interval_steps
    return settings | ({"save_steps": interval} if interval else {})


def _adapters(plan: Plan) -> dict[str, Any]:
    if not plan.lora_rank:
        return {}
    settings: dict[str, Any] = {
        "use_peft": True,
        "lora_r": int(plan.lora_rank),
        "lora_target_modules": targets(plan),
    }
    bits = int(plan.base_weight_bits)
    return settings | ({f"load_in_{bits}bit": True} if bits in (4, 8) else {})


def _run(plan: Plan) -> dict[str, Any]:
    """Arithmetic and sharding."""
    half, by, kind = half_of(plan), runs_by(plan), kind_of(plan)
    mixed = bool(half) and (kind not in ("pure",) or by == "deepspeed")
    settings: dict[str, Any] = {"bf16": half == "bf16" and mixed, "fp16": half == "fp16" and mixed}
    if kind in ("pure", "adapters"):
        settings["dtype"] = {"bf16": "bfloat16", "fp16": "float16"}.get(half, "bfloat16")
    elif by != "deepspeed":
        settings["dtype"] = "float32"
    if by == "deepspeed":
        return settings | zero_inline(plan, "deepspeed.")
    if by == "fsdp":
        settings |= {"fsdp": True, "fsdp_config.version": 2}
        settings |= fsdp_settings(plan, "fsdp_config.", offload="cpu_offload")
        if plan.offload_activations:
            settings["fsdp_config.activation_checkpointing"] = recomputes(plan)
            settings["fsdp_config.activation_checkpointing_offload"] = True
            settings["gradient_checkpointing"] = False
    return settings
