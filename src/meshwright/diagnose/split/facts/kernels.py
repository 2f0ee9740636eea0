"""Kernels of the window: their lengths, types, and what runs as many that could be one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.split.work import COMPUTE

if TYPE_CHECKING:
    from meshwright.diagnose.split.facts.view import Bools, View
    from meshwright.diagnose.trace.columns import Doubles, Longs

FP32 = re.compile(
    r"(ampere|volta|turing|maxwell|sm\d+|simt)_sgemm|^sgemm|gemm_f32f32_f32f32|_simt_sgemm"
    r"|\bCijk_\w+?_S_?B(_|H)|gemmSN|gemv2[NT]_kernel_val<int, int, float, float, float",
    re.IGNORECASE,
)
TYPES = {
    "fp8": re.compile(r"e4m3|e5m2|fp8|f8|mxe4|Cijk_\w+?_F8", re.IGNORECASE),
    "tf32": re.compile(r"tf32|tensorop_s1688gemm", re.IGNORECASE),
    "bf16": re.compile(r"bf16|bfloat16|Cijk_\w+?_(BBS|BSS|B_?B)|nvjet_tst", re.IGNORECASE),
    "fp16": re.compile(r"fp16|hgemm|half|h884|h1688|Cijk_\w+?_(HHS|HSS|H_?B)|nvjet_hsh", re.I),
}
BATCHED = re.compile(r"^aten::(bmm|baddbmm)$")
RSQRT = re.compile(r"rsqrt")
NORM_PARTS = re.compile(r"pow_tensor|MeanOps|rsqrt|MulFunctor|CUDAFunctor(OnSelf)?_add|square")
NEAR_SOFTMAX = 5  # kernels on either side: scale, mask, casts
NEAR_RSQRT = 3  # pow, mean, add before it; mul, cast, mul after it
FEWEST = 3  # kernels alike that make a mean
SPREAD = 0.3  # of kernels alike: more, and their sizes differ
SHAPED = 2**31  # names are smaller numbers than that
SHORTEST_NS = 5000  # shorter ones say more of clocks than of kernels


def kernel_facts(view: View) -> dict[str, float]:
    """Figures of kernels."""
    length = view.trace.device.end_ns - view.trace.device.start_ns
    computing = view.kernel & (view.work.kind == COMPUTE)
    found = {"kernels": float(view.kernel.sum())}
    if not computing.any():
        return found
    found["median_kernel_us"] = float(np.median(length[computing])) / 1000
    found |= _types(view) | _unfused(view, computing)
    found["loss_us"] = view.lasted_us(view.of_kind("loss"))
    drift = _drift(view, length, computing)
    return found if drift is None else found | {"kernel_drift": drift}


def _types(view: View) -> dict[str, float]:
    """Time of matrix products by the type that their kernels' names tell."""
    products = view.of_kind("gemm")
    if not products.any():
        return {}
    fp32 = products & view.named(FP32)
    found = {"fp32_matmul_us": view.lasted_us(fp32), "matmul_us": view.lasted_us(products)}
    rest = products & ~fp32
    for name, pattern in TYPES.items():
        mine = rest & view.named(pattern)
        rest &= ~mine
        found[f"{name}_matmul_us"] = view.lasted_us(mine)
    return found


def _unfused(view: View, computing: Bools) -> dict[str, float]:
    """Attention and norms that run as several kernels each."""
    order = np.flatnonzero(computing)
    softmax = view.of_kind("softmax")
    beside = near(order, softmax, NEAR_SOFTMAX)
    attention = softmax | (beside & _batched(view))
    norms = near(order, view.named(RSQRT), NEAR_RSQRT) & view.named(NORM_PARTS)
    return {
        "unfused_attention_us": view.lasted_us(attention) if (attention & ~softmax).any() else 0.0,
        "unfused_norm_us": view.lasted_us(norms),
    }


def _batched(view: View) -> Bools:
    """Products of many small matrices, by their operators; by kernel where none is known."""
    products = view.of_kind("gemm")
    return products & (view.asked_by(BATCHED) | (view.operator < 0))


def near(order: Longs, chosen: Bools, reach: int) -> Bools:
    """Which of the events at `order` have a chosen one at most `reach` places away."""
    at = np.flatnonzero(chosen[order])
    marks = np.zeros(len(order) + 1, dtype=np.int64)
    np.add.at(marks, np.maximum(at - reach, 0), 1)
    np.add.at(marks, np.minimum(at + reach + 1, len(order)), -1)
    found = np.zeros(len(chosen), dtype=np.bool_)
    found[order[np.cumsum(marks[:-1]) > 0]] = True
    return found


def alike(view: View) -> Longs:
    """A number for each device event, equal for kernels of one name and shape of their operator."""
    shape = np.full(len(view.operator), -1, dtype=np.int64)
    known = np.flatnonzero(view.operator >= 0)
    shape[known] = view.trace.operators.shape[view.operator[known]]
    return (shape + 1) * SHAPED + view.trace.device.name


def slower(group: Longs, length: Longs, these: Bools, those: Bools) -> float | None:
    """Length of these kernels over that of those alike, weighted by time; None if too few.

    Where nothing tells the shapes, only kernels that all last as long are alike for certain.
    """
    kinds, number = np.unique(group, return_inverse=True)
    most = int(number.max()) + 1 if len(number) else 0
    count, mean, spread = _means(number[those], length[those], most)
    mine, _, own_spread = _means(number[these], length[these], most)
    certain = np.where(kinds >= SHAPED, SPREAD, SPREAD / 4)
    usable = (count >= FEWEST) & (spread <= certain) & (mean >= SHORTEST_NS)
    usable &= (mine >= FEWEST) & (own_spread <= 2 * certain)
    chosen = these & usable[number]
    expected = mean[number[chosen]].sum()
    return float(length[chosen].sum() / expected) if expected else None


def _means(number: Longs, length: Longs, most: int) -> tuple[Longs, Doubles, Doubles]:
    """Count, mean and relative spread of lengths by number."""
    count: Longs = np.bincount(number, minlength=most).astype(np.int64)
    some = np.maximum(count, 1)
    mean = np.bincount(number, length, minlength=most) / some
    square = np.bincount(number, length.astype(np.float64) ** 2, minlength=most) / some
    spread = np.sqrt(np.maximum(square - mean**2, 0)) / np.maximum(mean, 1e-9)
    return count, mean, spread


def _drift(view: View, length: Longs, computing: Bools) -> float | None:
    """Kernels of the last third of the window over those of the first."""
    low, high = view.window
    start, third = view.trace.device.start_ns, (high - low) // 3
    early, late = computing & (start < low + third), computing & (start >= high - third)
    return slower(alike(view), length, late, early)
