"""A job as Megatron-Bridge's YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import framework as by_name
from meshwright.frameworks.megatron_lm.writing import express_as

if TYPE_CHECKING:
    from meshwright.frameworks.framework import Expressed
    from meshwright.plan.job import Job

_PRECISION = ("bf16", "fp16", "fp8_format", "fp8_recipe", "fp8_param_gather", "fp4_format")
_ADAPTERS = ("lora_rank", "lora_all_linear")
_NAMES = {"fp8_format": "fp8", "fp4_format": "fp4"}


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job; `version` "" is the newest."""
    own = by_name("megatron-bridge")
    return express_as(
        own, job, version, translate=translated, said_otherwise=_ADAPTERS, runs=_ADAPTERS
    )


def translated(raw: dict[str, Any], job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """Raw values that the table spells, and settings that are Bridge's own.

    Precision goes into one group, which Bridge copies into the model's and the optimizer's.
    """
    also: dict[str, Any] = {}
    for variable in _PRECISION:
        if variable in raw:
            also[f"mixed_precision.{_NAMES.get(variable, variable)}"] = raw.pop(variable)
    wide = raw.pop("accumulate_allreduce_grads_in_fp32", None)
    if wide is not None:
        also["mixed_precision.grad_reduce_in_fp32"] = wide
    raw.pop("grad_reduce_in_bf16", None)
    raw.pop("group_query_attention", None)
    also["dataset.seq_length"] = raw["seq_len"]
    raw["cross_entropy_loss_fusion"] = bool(job.plan.row(0).fused_loss)
    gated = bool(raw.get("gated_mlp")) or bool(raw.pop("quick_geglu", None))
    raw["gated_mlp"] = gated
    if raw.pop("squared_relu", None):
        raw["hidden_act"] = "squared_relu"
    elif gated:
        raw["hidden_act"] = "silu"
    rank = int(job.plan.row(0).lora_rank)
    if rank:
        also["peft.dim"] = rank
        if not job.plan.row(0).lora_all_linear:
            also["peft.target_modules"] = ["linear_qkv", "linear_proj"]
    return raw, also
