"""How wide the copies of a parameter are under autocast, under a master copy and in pure halves."""

from __future__ import annotations

from typing import Any

HALVES = ("bf16", "fp16", "fp8")
BYTES = {"fp32": 4, "float32": 4, "float": 4, "bf16": 2, "bfloat16": 2}
BYTES |= {"fp16": 2, "float16": 2, "half": 2}


def bytes_of(dtype: Any, otherwise: int) -> int:
    """Bytes of a dtype by any of its names; `otherwise` where it is none."""
    word = str(dtype).lower().removeprefix("torch.")
    return BYTES.get(word, otherwise)


def widths(
    precision: str, *, param: int, grad: int, reduce: int, state: int = 4, master: bool = False
) -> dict[str, Any]:
    """Plan fields, in words, of an arithmetic and the bytes of each copy of a parameter."""
    return {
        "precision": precision,
        "param_bytes": param,
        "grad_bytes": grad,
        "reduce_bytes": reduce,
        "optimizer_state_bytes": state,
        "master_weights": master,
    }


def single() -> dict[str, Any]:
    """Everything in fp32."""
    return widths("fp32", param=4, grad=4, reduce=4)


def autocast(precision: str, *, reduce: int) -> dict[str, Any]:
    """fp32 weights that are cast for the products (torch.autocast, FSDP's mixed precision)."""
    return widths(precision, param=4, grad=4, reduce=reduce)


def pure(precision: str) -> dict[str, Any]:
    """Weights, gradients and moments all of 16 bits: a model loaded so, without a master copy."""
    return widths(precision, param=2, grad=2, reduce=2, state=2)


def adapters(precision: str) -> dict[str, Any]:
    """Frozen 16-bit weights under small fp32 adapters."""
    return widths(precision, param=2, grad=4, reduce=4)


def kind_of(plan: Any) -> str:
    """ "single", "autocast", "master", "pure" or "other": how a plan's copies are held."""
    held = (int(plan.param_bytes), int(plan.grad_bytes), int(plan.optimizer_state_bytes))
    if plan.master_weights:
        return "master" if held[0] == 2 else "other"
    named = {(4, 4, 4): "autocast", (2, 2, 2): "pure", (2, 4, 4): "adapters"}
    kind = named.get(held, "other")
    return "single" if kind == "autocast" and int(plan.precision) == 0 else kind
