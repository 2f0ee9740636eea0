"""Bytes of a collective, and its rate on the bus as nccl-tests count it.

https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md: the rate of an all-reduce of S bytes over
n ranks in t seconds counts 2 (n - 1) / n S / t, of the other collectives (n - 1) / n S / t, where S
is the whole tensor, so that it can be held against the rate of a link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.diagnose.trace.columns import Message

WIDTHS = {
    **dict.fromkeys(("double", "long", "int64", "float64", "complexfloat"), 8),
    **dict.fromkeys(("float", "int", "int32", "float32", "uint32"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "float16", "int16", "c10::half"), 2),
    **dict.fromkeys(("c10::bfloat16", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
}


def width_bytes(dtype: str) -> int | None:
    """Bytes of an element, by PyTorch's word for its type; None for one it does not have."""
    word = dtype.lower()
    if word.startswith("float8"):
        return 1
    return WIDTHS.get(word)


def kind_of(message: Message) -> str:
    """The collective as the cost model names it; "" for barriers and the like."""
    word = message.collective.lower().replace("_", "")
    kinds = {
        "allreduce": "all_reduce",
        "allgather": "all_gather",
        "reducescatter": "reduce_scatter",
        "alltoall": "all_to_all",
    }
    found = next((kind for name, kind in kinds.items() if name in word), "")
    return found or next((w for w in ("broadcast", "reduce", "send", "recv") if w in word), "")


def payload_bytes(message: Message) -> int | None:
    """Bytes of the whole tensor; None where the message does not say."""
    width, kind = width_bytes(message.dtype), kind_of(message)
    elements = message.out_elements if kind == "all_gather" else message.in_elements
    return elements * width if width and kind and elements >= 0 else None


def bus_factor(kind: str, size: int) -> float:
    """Bytes that each of `size` ranks moves of one of the tensor."""
    if kind in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    return (2.0 if kind == "all_reduce" else 1.0) * (size - 1) / size


def busbw_gb_per_s(message: Message, transfer_ns: int, *, size: int) -> float | None:
    """The rate on the bus; None where size or bytes are not known."""
    moved = payload_bytes(message)
    if moved is None or size < 2 or transfer_ns <= 0:
        return None
    return moved * bus_factor(kind_of(message), size) / transfer_ns
