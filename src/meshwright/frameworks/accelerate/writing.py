"""A job as accelerate's YAML; the program's batch and model have no place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.deepspeed.writing import automatic, batch, zero_settings
from meshwright.frameworks.framework import Expressed
from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.hugging_face.widths import kind_of
from meshwright.frameworks.hugging_face.writing import (
    REASONS,
    Mesh,
    fsdp_settings,
    half_of,
    mesh_settings,
    recomputes,
    refusals,
    runs_by,
    steps_of,
)
from meshwright.frameworks.inverse import launch_of, lost, unsaid
from meshwright.frameworks.launching import ENGINE_FILE

if TYPE_CHECKING:
    from meshwright.frameworks.framework import Framework
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_P = "parallelism_config.parallelism_config_"
MESH = Mesh(
    replicate=_P + "dp_replicate_size",
    shard=_P + "dp_shard_size",
    tp=_P + "tp_size",
    cp=_P + "cp_size",
    ulysses=_P + "sp_size",
    strategy=_P + "cp_comm_strategy",
)
_PROGRAM = (
    *("micro_batch_size", "lora_rank", "lora_all_linear", "base_weight_bits", "fused_loss"),
    *("flash_attention", "optimizer", "loss_chunks", "optimizer_state_bytes"),
)
_REASONS = {**REASONS, **dict.fromkeys(_PROGRAM, "it is the program's")}
_ELSEWHERE = " outside its Megatron-LM plugin, which is not written"
_KINDS = {"deepspeed": "DEEPSPEED", "fsdp": "FSDP", "ddp": "MULTI_GPU"}


def write(own: Framework, job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what accelerate cannot run."""
    plan = job.plan.row(0)
    refused = refusals(plan, MESH, own.title, elsewhere=_ELSEWHERE)
    settings = {**_launched(job, plan), **_sharding(job, plan), **mesh_settings(plan, MESH)}
    engine = _engine(job, plan) if _by_file(plan) else {}
    speaks, said = (by_name("deepspeed"), engine) if engine else (own, settings)
    gone = unsaid(speaks, version if speaks is own else "", said, job, but_not=refused)
    return Expressed(
        settings=settings,
        launch=launch_of(job),
        beside={ENGINE_FILE: engine} if engine else {},
        lost=lost(gone, _REASONS, own.title),
        refused=refused,
    )


def _launched(job: Job, plan: Plan) -> dict[str, Any]:
    gpus, per_node = job.cluster.num_gpus, max(job.cluster.gpus_per_node, 1)
    mixed = half_of(plan) if kind_of(plan) != "pure" else ""
    settings: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _KINDS[runs_by(plan)],
        **({} if _by_file(plan) else {"mixed_precision": mixed or "no"}),
        "num_machines": -(-gpus // per_node),
        "num_processes": gpus,
    }
    if plan.compile:
        settings["dynamo_config.dynamo_backend"] = "INDUCTOR"
    return settings


def _sharding(job: Job, plan: Plan) -> dict[str, Any]:
    by = runs_by(plan)
    if by == "ddp":
        return {}
    if by == "deepspeed":
        return _deepspeed(job, plan)
    prefix = "fsdp_config.fsdp_"
    settings = {prefix + "version": 2, **fsdp_settings(plan, prefix, offload="offload_params")}
    settings[prefix + "activation_checkpointing"] = recomputes(plan)
    if plan.offload_activations and recomputes(plan):
        settings[prefix + "activation_checkpointing_offload"] = True
    return settings


def _by_file(plan: Plan) -> bool:
    """Whether DeepSpeed needs a file: the plugin's own settings have no words for AutoTP."""
    return runs_by(plan) == "deepspeed" and bool(plan.tp > 1 or plan.ep > 1)


def _engine(job: Job, plan: Plan) -> dict[str, Any]:
    """DeepSpeed's own settings, for the file that accelerate's names."""
    return {**batch(job, plan), **zero_settings(plan), **automatic(plan)}


def _deepspeed(job: Job, plan: Plan) -> dict[str, Any]:
    prefix = "deepspeed_config."
    if _by_file(plan):
        return {prefix + "deepspeed_config_file": ENGINE_FILE}
    settings: dict[str, Any] = {
        prefix + "zero_stage": int(plan.zero_stage),
        prefix + "gradient_accumulation_steps": steps_of(job),
        prefix + "offload_optimizer_device": "cpu" if plan.offload_optimizer > 0 else "none",
        prefix + "offload_param_device": "cpu" if plan.offload_params else "none",
    }
    if plan.zero_stage == 3:
        settings[prefix + "zero3_init_flag"] = True
    return settings
