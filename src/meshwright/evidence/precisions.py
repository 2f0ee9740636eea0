"""How a row writes its precision, as the fields of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.evidence.row import CannotExpress
from meshwright.plan.plan import Optimizer, Precision

if TYPE_CHECKING:
    from meshwright.evidence.habits import Habits
    from meshwright.evidence.row import Row

_WORDS = (
    (r"mxfp8", Precision.MXFP8),
    (r"nvfp4|\bfp4", Precision.NVFP4),
    (r"(?<!mx)fp8|int8|8-bit", Precision.FP8),
    (r"bf16|bfloat16", Precision.BF16),
    (r"fp16|float16|\bhalf", Precision.FP16),
    (r"fp32|tf32|float32", Precision.FP32),
)


def precision_fields(row: Row, habits: Habits) -> dict[str, Any]:
    """Plan fields: arithmetic, and the widths of weights, gradients, wire, optimizer states.

    Raises CannotExpress where the row names no precision, or two that run at different rates.
    """
    precision = _arithmetic(row)
    return {"precision": int(precision)} | _widths(row, habits, precision)


def _arithmetic(row: Row) -> Precision:
    """The arithmetic of the matrix products."""
    if not row.text("precision"):
        raise CannotExpress("precision is not stated")
    named = [word for pattern, word in _WORDS if row.says("precision", pattern)]
    if len(named) > 1 and row.says("precision", r"\bor\b"):
        raise CannotExpress(f"precision is ambiguous: {row.text('precision')}")
    if named:
        return named[0]
    raise CannotExpress(f"precision {row.text('precision')!r} is not known")


def _widths(row: Row, habits: Habits, precision: Precision) -> dict[str, Any]:
    """Bytes of each copy of a parameter."""
    if _is_pure(row, habits):
        return _bytes(2, 2, 2 if not habits.fsdp or row.says("precision", "pure") else 4, 2)
    if precision is Precision.FP32:
        return _bytes(4, 4, 4, 4)
    if _is_wide(row, habits):
        reduce_bytes = 2 if habits.xla else habits.reduce_bytes
        return _bytes(4, 4, reduce_bytes, 4)
    grad_bytes, reduce_bytes = habits.grad_bytes, habits.reduce_bytes
    if _sixteen_bit_gradients(row, precision):
        grad_bytes = reduce_bytes = 2
    if row.says("precision", r"fp32 grad") or row.says("notes", r"fp32 gradient accumulation"):
        grad_bytes = reduce_bytes = 4
    return _bytes(2, grad_bytes, reduce_bytes, 4) | {"master_weights": True}


def _bytes(param: int, grad: int, reduce: int, state: int) -> dict[str, Any]:
    """Plan fields for widths without a separate master copy."""
    return {
        "param_bytes": param,
        "grad_bytes": grad,
        "reduce_bytes": reduce,
        "optimizer_state_bytes": state,
        "master_weights": False,
    }


def _is_pure(row: Row, habits: Habits) -> bool:
    """True when weights, gradients and optimizer states all have 16 bits."""
    stated = row.says("precision", r"\bpure\b") or row.says("notes", r"pure bf16")
    return stated or (habits.pure and not row.says("precision", r"fp32|amp"))


def _is_wide(row: Row, habits: Habits) -> bool:
    """True when the trained weights are fp32 and cast for the products."""
    stated = row.says("precision", r"fp32 (param|weight)")
    return stated or habits.wide_params or (habits.fsdp and row.says("precision", r"\bamp\b"))


def _sixteen_bit_gradients(row: Row, precision: Precision) -> bool:
    """True for 16-bit gradient buffers; fp16 training has them unless told otherwise."""
    if row.says("notes", r"16-bit gradient"):
        return True
    return precision is Precision.FP16 and not row.says("precision", r"bf16")


def optimizer_of(row: Row) -> int:
    """The optimizer, from the notes; Adam unless they say otherwise. LAMB has Adam's states."""
    if row.says("notes", r"\bmuon\b"):
        return int(Optimizer.MUON)
    if row.says("notes", r"8-bit (\(bnb\) optimizer|adam)|adam.?8-?bit"):
        return int(Optimizer.ADAM_8BIT)
    if row.says("notes", r"adafactor"):
        return int(Optimizer.ADAFACTOR)
    return int(Optimizer.ADAM)
