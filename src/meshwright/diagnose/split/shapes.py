"""Shapes of attention and elementwise operators that a trace recorded, and their kernels' time."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshwright.diagnose.rank import AttentionShape, MovedShape
from meshwright.diagnose.split.work import joined, names_like
from meshwright.diagnose.trace.columns import Device, Host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.diagnose.trace.columns import Longs, Shape, Trace

# Operators that launch the fused kernels themselves; those around them have other external ids.
# PyTorch 2.13 native_functions.yaml; the flash-attn package 2.8 (torch.library names).
ATTENTION = re.compile(
    r"^(aten::_(flash|efficient|cudnn)_attention_(forward|backward)"
    r"|aten::_scaled_dot_product_(flash|efficient|cudnn|fused)_attention\w*"
    r"|aten::_scaled_dot_product_flash_attention_for_cpu(_backward)?"
    r"|flash_attn(_3)?::_?(flash_attn_)?(forward|backward|fwd|bwd))$"
)
HEADS_SECOND = re.compile(r"_scaled_dot_product_|_cudnn_attention")  # (batch, heads, rows, width)
ELEMENTWISE = re.compile(r"^aten::(add|sub|mul|div|copy|neg|silu|gelu|relu|sigmoid|tanh|exp)_?$")
ONE_INPUT = re.compile(r"(copy|neg|silu|gelu|relu|sigmoid|tanh|exp)_?$")
WIDTHS = {
    **dict.fromkeys(("double", "long int", "long", "int64_t"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("c10::BFloat16", "c10::Half", "short", "short int"), 2),
    **dict.fromkeys(("bool", "unsigned char", "signed char", "char"), 1),
}
MOST_SHAPES = 40
LEAST_BYTES = 1 << 20


class Timed(NamedTuple):
    """Operators of one name and shape that ran kernels."""

    op: str
    shape: Shape
    calls: int
    ns: int


def attention_of(trace: Trace) -> tuple[AttentionShape, ...]:
    """The fused attention of a trace, most time first; () where it recorded no shapes."""
    sums: dict[tuple[Any, ...], list[int]] = {}
    for timed in _timed(trace, ATTENTION):
        sizes = attention_sizes(timed.op, timed.shape)
        if sizes is not None:
            held = sums.setdefault(sizes, [0, 0])
            held[0] += timed.calls
            held[1] += timed.ns
    names = ("op", "batch", "heads", "kv_heads", "queries", "keys", "head_dim", "dtype")
    found = [
        AttentionShape(
            **dict(zip(names, sizes[:-1], strict=True)),
            backward=sizes[-1],
            count=count,
            kernel_us=ns / 1000,
        )
        for sizes, (count, ns) in sums.items()
    ]
    return tuple(sorted(found, key=lambda s: -s.kernel_us)[:MOST_SHAPES])


def attention_sizes(op: str, shape: Shape) -> tuple[Any, ...] | None:
    """(op, batch, heads, kv_heads, queries, keys, head_dim, dtype, backward); None without them.

    A backward operator has the gradient first. Sequences packed without padding have three
    dimensions: their lengths are not recorded, so that their work is not known.
    """
    backward = "backward" in op or op.endswith("bwd")
    first = 1 if backward else 0
    if len(shape.dims) < first + 2:
        return None
    query, key = shape.dims[first], shape.dims[first + 1]
    if not (_four(query) and _four(key)):
        return None
    rows, heads = (2, 1) if HEADS_SECOND.search(op) else (1, 2)
    dtype = shape.types[first] if len(shape.types) > first else ""
    return (
        op,
        query[0],
        query[heads],
        key[heads],
        query[rows],
        key[rows],
        query[3],
        dtype,
        backward,
    )


def _four(sizes: Any) -> bool:
    whole = isinstance(sizes, tuple) and all(isinstance(size, int) for size in sizes)
    return whole and len(sizes) == 4 and min(sizes) > 0


def moved_of(trace: Trace) -> tuple[MovedShape, ...]:
    """Elementwise operators on large tensors, most time first; () without recorded shapes."""
    sums: dict[tuple[str, int], list[int]] = {}
    for timed in _timed(trace, ELEMENTWISE):
        moved = moved_bytes(timed.op, timed.shape)
        if moved >= LEAST_BYTES:
            held = sums.setdefault((timed.op, moved), [0, 0])
            held[0] += timed.calls
            held[1] += timed.ns
    found = [
        MovedShape(op=op, bytes=moved, count=count, kernel_us=ns / 1000)
        for (op, moved), (count, ns) in sums.items()
    ]
    return tuple(sorted(found, key=lambda s: -s.kernel_us)[:MOST_SHAPES])


def moved_bytes(op: str, shape: Shape) -> int:
    """Bytes that an elementwise operator reads and writes; 0 where a type is unknown.

    It reads its inputs and writes one tensor as large as the largest, of the first's type; a copy
    reads the second and writes the first.
    """
    tensors = [
        (prod(dims), WIDTHS.get(kind, 0))
        for dims, kind in zip(shape.dims, shape.types, strict=False)
        if isinstance(dims, tuple) and dims and all(isinstance(d, int) for d in dims)
    ]
    if not tensors or not all(width for _, width in tensors):
        return 0
    if op.startswith("aten::copy"):
        return sum(count * width for count, width in tensors[:2]) if len(tensors) > 1 else 0
    read = tensors[:1] if ONE_INPUT.search(op) else tensors[:2]
    written = max(count for count, _ in read) * tensors[0][1]
    return sum(count * width for count, width in read) + written


def _timed(trace: Trace, names: re.Pattern[str]) -> Iterator[Timed]:
    """Operators of these names whose kernels are in the trace, by name and shape."""
    operators = trace.operators
    rows = np.flatnonzero((operators.kind == Host.OPERATOR) & (operators.shape >= 0))
    rows = rows[names_like(trace.names, operators.name[rows], names)] if len(rows) else rows
    if not len(rows):
        return
    ns = _kernel_ns(trace, operators.external[rows])
    rows, ns = rows[ns > 0], ns[ns > 0]
    key = operators.shape[rows].astype(np.int64) * max(len(trace.names), 1) + operators.name[rows]
    _, first, alike = np.unique(key, return_index=True, return_inverse=True)
    counts, sums = np.bincount(alike), np.bincount(alike, weights=ns)
    for number, row in enumerate(rows[first].tolist()):
        yield Timed(
            op=trace.names[operators.name[row]],
            shape=trace.shapes[operators.shape[row]],
            calls=int(counts[number]),
            ns=int(sums[number]),
        )


def _kernel_ns(trace: Trace, external: Longs) -> Longs:
    """Nanoseconds of the kernels of each external id."""
    device = trace.device
    asked, place = np.unique(external, return_inverse=True)
    row = joined(asked, np.arange(len(asked)), device.external)
    mine = (row >= 0) & (device.external >= 0) & (device.kind == Device.KERNEL)
    length = (device.end_ns - device.start_ns)[mine]
    total = np.bincount(row[mine], weights=length, minlength=len(asked))
    return total.astype(np.int64)[place]
