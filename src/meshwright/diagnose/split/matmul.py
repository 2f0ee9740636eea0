"""Matrix products whose shapes the trace recorded, and the rate that they reached."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshwright.diagnose.rank import Matmuls, MatmulShape
from meshwright.diagnose.split.work import joined, names_like
from meshwright.diagnose.trace.columns import Device, Host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.trace.columns import Longs, Shape, Trace

PRODUCTS = re.compile(r"^aten::(mm|addmm|bmm|baddbmm)$")
MOST_SHAPES = 40
LONGEST = 2**40  # side of a matrix: more is no size


class Product(NamedTuple):
    """One shape of a batched product (batch, m, k) x (batch, k, n)."""

    op: str
    batch: int
    m: int
    n: int
    k: int
    dtype: str


def matmuls_of(trace: Trace) -> Matmuls | None:
    """The matrix products of a trace; None where it recorded no shapes.

    The time of a product is that of all kernels of its external id, casts and the reduction of a
    split k included. Floating point operations are 2 batch m n k.
    """
    operators = trace.operators
    rows = np.flatnonzero((operators.kind == Host.OPERATOR) & (operators.shape >= 0))
    rows = rows[names_like(trace.names, operators.name[rows], PRODUCTS)]
    if len(rows) == 0:
        return None
    kernel_ns, kernels = _device_time(trace, operators.external[rows])
    key = operators.shape[rows].astype(np.int64) * max(len(trace.names), 1) + operators.name[rows]
    _, first, alike = np.unique(key, return_index=True, return_inverse=True)
    told = [_product(trace, int(rows[row])) for row in first]
    usable = np.array([product is not None for product in told])[alike]
    held = usable & (kernels > 0)
    counts = np.bincount(alike[held], minlength=len(told))
    times = np.bincount(alike[held], kernel_ns[held], minlength=len(told))
    sums: dict[Product, tuple[int, int]] = {}
    for product, many, took in zip(told, counts, times, strict=True):
        if product is not None and many:
            count, ns = sums.get(product, (0, 0))
            sums[product] = (count + int(many), ns + int(took))
    return _matmuls(sums, ops=int(usable.sum()), without=int((usable & (kernels == 0)).sum()))


def _device_time(trace: Trace, external: Longs) -> tuple[Longs, Longs]:
    """Nanoseconds and number of the device events of each external id."""
    device = trace.device
    asked, place = np.unique(external, return_inverse=True)
    row = joined(asked, np.arange(len(asked)), device.external)
    mine = (row >= 0) & (device.external >= 0) & (device.kind == Device.KERNEL)
    length = (device.end_ns - device.start_ns)[mine]
    ns = np.bincount(row[mine], length, minlength=len(asked)).astype(np.int64)
    count = np.bincount(row[mine], minlength=len(asked))
    return ns[place], np.asarray(count, dtype=np.int64)[place]


def _product(trace: Trace, row: int) -> Product | None:
    """The product of an operator; None where its shapes are none of a product."""
    name = trace.names[trace.operators.name[row]]
    return product_of(name, trace.shapes[trace.operators.shape[row]])


def product_of(op: str, shape: Shape) -> Product | None:
    """The product that an operator of these inputs computes; addmm adds its first input."""
    first = 1 if op.removeprefix("aten::") in ("addmm", "baddbmm") else 0
    if len(shape.dims) < first + 2:
        return None
    left, right = shape.dims[first], shape.dims[first + 1]
    if not (_whole(left) and _whole(right)) or len(left) != len(right) or len(left) not in (2, 3):
        return None
    if left[-1] != right[-2] or left[:-2] != right[:-2]:
        return None
    batch = int(left[0]) if len(left) == 3 else 1
    dtype = shape.types[first] if len(shape.types) > first else ""
    return Product(op, batch, int(left[-2]), int(right[-1]), int(left[-1]), dtype)


def _whole(sizes: Any) -> bool:
    return isinstance(sizes, tuple) and all(
        isinstance(size, int) and 0 <= size < LONGEST for size in sizes
    )


def _matmuls(sums: dict[Product, tuple[int, int]], *, ops: int, without: int) -> Matmuls:
    shapes = [_shape(product, count, ns) for product, (count, ns) in sums.items()]
    shapes.sort(key=lambda shape: -shape.kernel_us)
    work = sum(flops(p) * count for p, (count, _) in sums.items())
    ns = sum(ns for _, ns in sums.values())
    return Matmuls(
        ops=ops,
        ops_without_kernel=without,
        kernel_us=ns / 1000,
        tflop=work / 1e12,
        mean_tflops=_rate(work, ns),
        shapes=tuple(shapes[:MOST_SHAPES]),
    )


def flops(product: Product) -> int:
    """Floating point operations of a product."""
    return 2 * product.batch * product.m * product.n * product.k


def _shape(product: Product, count: int, ns: int) -> MatmulShape:
    rate = _rate(flops(product) * count, ns)
    return MatmulShape(**product._asdict(), count=count, kernel_us=ns / 1000, tflops=rate)


def _rate(work: float, ns: float) -> float:
    """TFLOP/s."""
    return work / ns / 1000 if ns else 0.0


__all__: Sequence[str] = ("Product", "flops", "matmuls_of", "product_of")
