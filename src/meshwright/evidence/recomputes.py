"""Recomputation and offload as rows write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.evidence.row import CannotExpress
from meshwright.plan.plan import Recompute, RecomputeModule

if TYPE_CHECKING:
    from meshwright.evidence.row import Row

_MODULES = (
    (r"core_?attn|attention core", RecomputeModule.CORE_ATTENTION),
    (r"\bmlp\b", RecomputeModule.MLP),
    (r"layernorm|rmsnorm|\bnorm\b", RecomputeModule.NORM),
    (r"moe_act", RecomputeModule.MOE_ACTIVATION),
    (r"\bmoe\b(?!_)", RecomputeModule.MOE),
    (r"shared_expert", RecomputeModule.SHARED_EXPERTS),
    (r"mla_up_proj|mla up", RecomputeModule.MLA_UP_PROJECTION),
)
_ALL_BUT_PRODUCTS = RecomputeModule.CORE_ATTENTION | RecomputeModule.NORM
_KINDS = dict.fromkeys(("no", "off", "false", "0"), "none") | dict.fromkeys(
    ("yes", "on", "true", "1", "all", "every layer", "block", "uniform"), "full"
)


def recompute_fields(row: Row, *, flash: bool) -> dict[str, Any]:
    """Plan fields for what is recomputed.

    Core attention alone is nothing to recompute with a fused kernel, which never stores the scores.
    Raises CannotExpress where the row does not say, or not how much.
    """
    written = row.text("recompute").lower()
    kind = _KINDS.get(written, written)
    if kind == "none":
        return {"recompute": int(Recompute.NONE)}
    if kind == "full":
        return _full(row)
    if kind == "selective":
        return _selective(row, flash=flash)
    raise CannotExpress(f"recompute is {kind!r}" if kind else "recompute is not stated")


def _full(row: Row) -> dict[str, Any]:
    """Whole layers: all, a number a stage, or groups of a uniform size."""
    detail = row.text("recompute_detail").lower()
    fields: dict[str, Any] = {"recompute": int(Recompute.FULL)}
    listed = re.search(r"layers per stage \[([\d, ]+)\]", detail)
    block = re.search(r"block (\d+)", detail)
    uniform = re.search(r"uniform (\d+)", detail)
    if listed:
        fields["recompute_layers"] = max(int(n) for n in listed.group(1).split(","))
    elif block:
        fields["recompute_layers"] = int(block.group(1))
    elif uniform:
        fields |= {"recompute_layers": int(uniform.group(1)), "recompute_uniform": True}
    return fields


def _selective(row: Row, *, flash: bool) -> dict[str, Any]:
    """Named modules, or a policy of rematerialization."""
    detail = row.text("recompute_detail").lower()
    if re.search(r"not stated|unknown", detail):
        raise CannotExpress(f"recompute is selective, {detail}")
    modules = _modules(detail)
    if flash and modules == RecomputeModule.CORE_ATTENTION:
        return {"recompute": int(Recompute.NONE)}
    return {"recompute": int(Recompute.SELECTIVE), "recompute_modules": int(modules)}


def _modules(detail: str) -> RecomputeModule:
    """The modules that a description names.

    MaxText's `minimal` keeps the outputs of matrix products; its policies that keep or offload
    q, k and v recompute the rest (AI-Hypercomputer/maxtext configs/base.yml). MindFormers'
    `select_recompute` covers the cheap operators between the products.
    """
    if "minimal" in detail:
        return _ALL_BUT_PRODUCTS
    if re.search(r"qkv|q/k/v|everything else|rest recomputed", detail):
        return _ALL_BUT_PRODUCTS | RecomputeModule.MLP
    if "select_recompute" in detail:
        return RecomputeModule.NORM
    named = RecomputeModule(0)
    for pattern, module in _MODULES:
        if re.search(pattern, detail):
            named |= module
    return named or RecomputeModule.CORE_ATTENTION


def offload_fields(row: Row, *, layers: int, pp: int) -> dict[str, Any]:
    """Plan fields for what moves to the host: a share of activations, optimizer, parameters."""
    text = row.text("offload").lower()
    if not text or text == "none" or "ema" in text:
        return {}
    counted = re.search(r"activations of (\d+) layers", text)
    if counted:
        share = int(counted.group(1)) / max(layers / pp, 1)
        return {"offload_activations": min(share, 1.0)}
    if "fsdp offload" in text:
        return {"offload_params": True, "offload_optimizer": 1.0}
    if "optim" in text:
        return {"offload_optimizer": 1.0}
    return {"offload_activations": _share_of_activations(text)}


def _share_of_activations(text: str) -> float:
    """Share of the saved activations that a description of tensors covers (estimated)."""
    if "fine-grained" in text or "swap attention" in text:
        return 0.3
    return 0.6 if "qkv" in text else 1.0
