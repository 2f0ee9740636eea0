"""Curves of products, attention and memory-bound kernels from the shapes that traces recorded.

A run has a handful of shapes, a curve half a dozen parameters: the form stays that of the catalogue
(or of the cluster at hand), and its rate is set so that all recorded kernels together take as long
as they took. What single shapes lie off by is the spread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.hardware import curves, efficiency
from meshwright.hardware.measured import MemoryCurve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.diagnose.across.table import Doubles
    from meshwright.diagnose.rank import AttentionShape, MatmulShape, MovedShape
    from meshwright.hardware.cluster import Gpu

FEWEST = 10  # kernels that a figure must rest on
CACHED_BYTES = 64e6  # tensors below may come from a cache
PRECISION = {
    **dict.fromkeys(("c10::BFloat16", "BFloat16"), "bf16"),
    **dict.fromkeys(("c10::Half", "Half"), "fp16"),
    **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e5m2", "Float8_e4m3fn"), "fp8"),
    **dict.fromkeys(("c10::Float8_e4m3fnuz", "c10::Float8_e5m2fnuz"), "fp8"),
}
LEAST, MOST = 1e-4, 4.0  # shares of a peak that a rate is looked for between


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A curve, the kernels that it rests on, and how far shapes lie from it."""

    curve: Any
    points: int
    spread: float
    reached: float  # share of the peak, over all of the kernels


def precision_of(dtype: str, *, tflops: float, gpu: Gpu | None) -> str:
    """The precision that products of a type ran in, "" for a type that has none.

    Products of fp32 run in TF32 where that is allowed: those faster than the device's fp32 rate.
    """
    if dtype not in ("float", "Float"):
        return PRECISION.get(dtype, "")
    plain = gpu.peak_flops.get("fp32", 0.0) if gpu else 0.0
    return "tf32" if gpu and "tf32" in gpu.peak_flops and tflops * 1e12 > plain > 0 else "fp32"


def fit_matmul(gpu: Gpu, precision: str, shapes: Sequence[MatmulShape]) -> Fitted | None:
    """The curve of products in one precision; None for fewer than ten bound by computation."""
    name, base, roof = efficiency.matmul_curve(gpu, precision)
    m, n, k, count, us = _columns(shapes, ("m", "n", "k", "count", "kernel_us"))
    each_s = us / count * 1e-6
    width = efficiency.OPERAND_BYTES[name]

    def seconds(curve: curves.MatmulCurve) -> Doubles:
        found: Doubles = curves.matmul_s(curve, roof, m, n, k, operand_bytes=width)
        return found

    free = replace(base, memory=1e9)  # as if memory were no bound
    bound = seconds(replace(base, launch_s=0.0)) <= seconds(replace(free, launch_s=0.0))
    bound &= 2 * m * n * k / roof.flops_per_s > base.launch_s
    if count[bound].sum() < FEWEST:
        return None
    weight = np.where(bound, count, 0.0)
    rate = _solved(
        lambda share: float((weight * seconds(replace(base, rate=share))).sum()),
        float((weight * each_s).sum()),
    )
    if rate is None:
        return None
    curve = replace(base, rate=rate)
    return Fitted(
        curve=curve,
        points=int(count[bound].sum()),
        spread=_spread(seconds(curve)[bound] / each_s[bound], us[bound]),
        reached=float((2 * m * n * k * weight).sum() / (weight * each_s).sum() / roof.flops_per_s),
    )


def fit_attention(
    gpu: Gpu, precision: str, shapes: Sequence[AttentionShape], *, causal: bool
) -> Fitted | None:
    """The curve of fused attention; None for fewer than ten forward kernels.

    Without backward kernels the backward share stays as it was.
    """
    base, roof = efficiency.attention_curve(gpu, precision)
    forward = [s for s in shapes if not s.backward]
    backward = [s for s in shapes if s.backward]
    if sum(s.count for s in forward) < FEWEST:
        return None

    def of(curve: curves.AttentionCurve, shown: Sequence[AttentionShape]) -> Doubles:
        return np.array([_attention_s(curve, roof, s, causal=causal) for s in shown])

    count, us = _columns(forward, ("count", "kernel_us"))
    rate = _solved(
        lambda share: float((count * of(replace(base, rate=share), forward)).sum()),
        float(us.sum()) * 1e-6,
    )
    if rate is None:
        return None
    curve = replace(base, rate=rate)
    if sum(s.count for s in backward) >= FEWEST:
        times, spent = _columns(backward, ("count", "kernel_us"))
        share = 2.5 * float((times * of(curve, backward)).sum()) / (float(spent.sum()) * 1e-6)
        curve = replace(curve, backward=share)
    work = sum(4.0 * s.batch * s.heads * s.queries * s.keys * s.head_dim * s.count for s in forward)
    return Fitted(
        curve=curve,
        points=int(sum(s.count for s in shapes)),
        spread=_spread(of(curve, forward) / (us / count * 1e-6), us),
        reached=work * (0.5 if causal else 1.0) / (float(us.sum()) * 1e-6) / roof.flops_per_s,
    )


def _attention_s(
    curve: curves.AttentionCurve, roof: curves.Roof, shape: AttentionShape, *, causal: bool
) -> float:
    return float(
        curves.attention_forward_s(
            curve,
            roof,
            rows=shape.batch * shape.heads * shape.queries,
            keys=shape.keys,
            head_dim=shape.head_dim,
            kv_rows=shape.batch * shape.kv_heads * shape.keys,
            causal=causal and shape.queries == shape.keys,
        )
    )


def fit_memory(gpu: Gpu, shapes: Sequence[MovedShape]) -> Fitted | None:
    """The share of the memory's rate that elementwise kernels reach on tensors beyond caches."""
    large = [s for s in shapes if s.bytes >= CACHED_BYTES]
    if sum(s.count for s in large) < FEWEST:
        return None
    moved, count, us = _columns(large, ("bytes", "count", "kernel_us"))
    empty = float(efficiency.memory_bound_s(gpu, 0.0))
    busy_s = np.maximum(us * 1e-6 - count * empty, 0.5e-6 * us)
    share = float((moved * count).sum() / busy_s.sum() / gpu.memory_bytes_per_s)
    rates = moved * count / busy_s / gpu.memory_bytes_per_s
    return Fitted(
        curve=MemoryCurve(launch_s=empty, memory=min(share, 1.0)),
        points=int(count.sum()),
        spread=_spread(share / rates, us),
        reached=share,
    )


def _solved(seconds_of: Callable[[float], float], wanted: float) -> float | None:
    """The share at which kernels take `wanted` seconds in all; None where no share does.

    Seconds fall as the share grows, so that halving finds it.
    """
    low, high = np.log(LEAST), np.log(MOST)
    if not seconds_of(float(np.exp(high))) <= wanted <= seconds_of(float(np.exp(low))):
        return None
    for _ in range(60):
        middle = 0.5 * (low + high)
        if seconds_of(float(np.exp(middle))) > wanted:
            low = middle
        else:
            high = middle
    return float(np.exp(high))


def _spread(ratio: Doubles, weight: Doubles) -> float:
    """The median distance of ratios from one, each as heavy as its time."""
    off = np.abs(ratio - 1.0)
    order = np.argsort(off)
    total = np.cumsum(weight[order])
    return float(off[order][np.searchsorted(total, 0.5 * total[-1])])


def _columns(points: Sequence[Any], names: tuple[str, ...]) -> list[Doubles]:
    return [np.array([getattr(p, name) for p in points], dtype=float) for name in names]
