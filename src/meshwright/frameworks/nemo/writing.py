"""A job as the settings of a NeMo 2 recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.megatron_lm.writing import express_as

if TYPE_CHECKING:
    from meshwright.frameworks.framework import Expressed
    from meshwright.plan.job import Job

_PRECISION = ("fp8_format", "fp8_recipe", "fp8_param_gather", "fp4_format")
_NAMES = {"fp8_format": "fp8", "fp4_format": "fp4"}


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job; `version` "" is the newest."""
    own = by_name("nemo")
    away = ("lora_rank", "lora_all_linear")
    return express_as(own, job, version, translate=_translated, said_otherwise=away, runs=away)


def _translated(raw: dict[str, Any], job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """Raw values that the table spells, and settings that are NeMo's own."""
    plan, cluster = job.plan.row(0), job.cluster
    per_node = max(min(cluster.gpus_per_node, cluster.num_gpus), 1)
    also: dict[str, Any] = {
        "trainer.num_nodes": -(-cluster.num_gpus // per_node),
        "trainer.devices": per_node,
    }
    half = next((h for h in ("bf16", "fp16") if raw.pop(h, None)), None)
    also["trainer.plugins.precision"] = f"{half}-mixed" if half else "32"
    for variable in _PRECISION:
        if variable in raw:
            also[f"trainer.plugins.{_NAMES.get(variable, variable)}"] = raw.pop(variable)
    wide = raw.pop("accumulate_allreduce_grads_in_fp32", None)
    if wide is not None:
        also["trainer.plugins.grad_reduce_in_fp32"] = wide
    for gone in ("grad_reduce_in_bf16", "group_query_attention", "max_position_embeddings"):
        raw.pop(gone, None)
    also |= _fsdp(raw)
    raw["cross_entropy_loss_fusion"] = bool(plan.fused_loss)
    raw |= _activation(raw)
    also["model.config.seq_length"] = raw["seq_len"]
    also["data.seq_length"] = raw.pop("seq_len")
    if plan.lora_rank:
        also["peft.dim"] = int(plan.lora_rank)
        if not plan.lora_all_linear:
            also["peft.target_modules"] = ["linear_qkv", "linear_proj"]
    return raw, also


def _fsdp(raw: dict[str, Any]) -> dict[str, Any]:
    """The strategy's word for Megatron-FSDP."""
    if not raw.pop("use_megatron_fsdp", None):
        return {}
    return {"trainer.strategy.fsdp": "megatron"}


def _activation(raw: dict[str, Any]) -> dict[str, Any]:
    """The activation function and its gate."""
    gated = bool(raw.get("gated_mlp")) or bool(raw.pop("quick_geglu", None))
    if raw.pop("squared_relu", None):
        return {"gated_mlp": False, "hidden_act": "squared_relu"}
    return {"gated_mlp": gated, **({"hidden_act": "silu"} if gated else {})}
