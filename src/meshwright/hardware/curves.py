"""The forms of the kernel curves: seconds from shapes, given a handful of parameters.

Used twice: with the parameters of data/efficiency.toml to predict, and by
benchmarks/fit_kernels.py to find them. All shapes are scalars or columns that broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.base.noun import dataclass

OUTPUT_BYTES = 2.0  # the packaged tables write 16-bit products whatever their operands' width


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What the device promises: dense FLOP/s in the precision, and bytes/s of its memory."""

    flops_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulCurve:
    """Parameters of one device and precision.

    `rate` and `memory` are the shares of the roof that very large products reach. `m0`, `n0`, `k0`
    pad each dimension: tiles that are not full, the fill of the last wave, the prologue of the
    inner loop; a product of m = m0 runs at half speed. `launch_s` is what an empty kernel costs on
    the device (not on the host). `cast_bytes` are moved per element of the left operand by the
    cast from 16 bits that the measured 8-bit and 4-bit products contain; see `cast_s`. The product
    is written in `output_bytes`.
    """

    launch_s: float
    rate: float
    m0: float
    n0: float
    k0: float
    memory: float
    cast_bytes: float = 0.0
    output_bytes: float = OUTPUT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsCurve:
    """How grouped products compare with one product of all their rows.

    `expert_rate` is the share of the dense rate, `expert_rows0` the rows that pad each expert,
    `routing_s` and `traffic` what the measured kernel spends on routing, gathering and summing
    (seconds, and passes over the tokens); the last two are not part of `grouped_matmul_s`.
    """

    expert_rate: float
    expert_rows0: float
    routing_s: float
    traffic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCurve:
    """Parameters of a fused attention kernel: `rows0` fills the device, `keys0` the inner loop.

    `head_dim0` is work per score that does not grow with the head (softmax). `backward` is the
    share of the forward rate that the backward kernel reaches on its 2.5 times as many FLOPs.
    `cache_bytes` are moved per key and value element by the cache that the measured kernel fills
    and training does not have; `attention_forward_s` leaves it out.
    """

    launch_s: float
    rate: float
    rows0: float
    keys0: float
    head_dim0: float
    backward: float
    cache_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCurve:
    """Parameters of one collective on one kind of link.

    `rate` is the share of the link's rate at very large sizes, `launch_s` the least time of two
    ranks, `step_s` what each doubling of the group adds, `ramp_s` how slowly the rate is reached:
    at a transfer time of `ramp_s` the collective takes twice that long.
    """

    launch_s: float
    step_s: float
    rate: float
    ramp_s: float


def matmul_s(
    curve: MatmulCurve, roof: Roof, m: Any, n: Any, k: Any, *, operand_bytes: float
) -> Any:
    """Seconds of an m x k by k x n product, operands ready in their precision.

    The greater of padded FLOPs over their rate and bytes over theirs, plus the launch.
    """
    compute = (m + curve.m0) * (n + curve.n0) * (k + curve.k0)
    moved = (m + n) * (k * operand_bytes) + m * n * curve.output_bytes
    compute_s = compute * (2.0 / (roof.flops_per_s * curve.rate))
    moved_s = moved * (1.0 / (roof.bytes_per_s * curve.memory))
    return np.maximum(compute_s, moved_s) + curve.launch_s


def cast_s(curve: MatmulCurve, roof: Roof, elements: Any) -> Any:
    """Seconds of the cast (absolute maximum, scale, narrow) of a 16-bit operand of `elements`."""
    return elements * (curve.cast_bytes / (roof.bytes_per_s * curve.memory))


def grouped_matmul_s(
    curve: MatmulCurve,
    experts_curve: ExpertsCurve,
    roof: Roof,
    rows: Any,
    n: Any,
    k: Any,
    *,
    experts: Any,
    operand_bytes: float,
) -> Any:
    """Seconds of `experts` products of rows x k by k x n in one kernel, equal rows each.

    Every expert's weights are read once, so that few rows to an expert are bound by memory.
    """
    compute = experts * (rows + experts_curve.expert_rows0) * (n + curve.n0) * (k + curve.k0)
    moved = experts * ((rows + n) * (k * operand_bytes) + rows * n * curve.output_bytes)
    rate = roof.flops_per_s * curve.rate * experts_curve.expert_rate
    compute_s = compute * (2.0 / rate)
    moved_s = moved * (1.0 / (roof.bytes_per_s * curve.memory))
    return np.maximum(compute_s, moved_s) + curve.launch_s


def attention_forward_s(
    curve: AttentionCurve,
    roof: Roof,
    *,
    rows: Any,
    keys: Any,
    head_dim: Any,
    kv_rows: Any,
    causal: Any,
) -> Any:
    """Seconds of fused attention, forward.

    `rows` = batch * heads * queries, `kv_rows` = batch * kv_heads * keys. A causal mask halves the
    scores (arXiv 2307.08691 section 3.1: blocks above the diagonal are skipped).
    """
    share = np.where(causal, 0.5, 1.0)
    scores = (rows + curve.rows0) * (keys + curve.keys0) * share
    compute_s = scores * (head_dim + curve.head_dim0) * (4.0 / (roof.flops_per_s * curve.rate))
    moved_s = (rows + kv_rows) * head_dim * (4.0 / roof.bytes_per_s)
    return np.maximum(compute_s, moved_s) + curve.launch_s


def attention_backward_s(curve: AttentionCurve, forward_s: Any) -> Any:
    """Seconds of the backward kernel: five products where the forward has two."""
    return forward_s * (2.5 / curve.backward)


def traffic(kind: str, size: Any, *, in_network_reduction: bool) -> Any:
    """What each of `size` ranks sends in a collective, as a multiple of the whole tensor.

    A "send" to one other rank moves all of it. A ring all-reduce sends 2(n-1)/n; where the switch
    adds up, a rank sends its tensor once and its share of the result again, (n+1)/n (NCCL's NVLS
    algorithm; the measured rates of 2, 4 and 8 ranks then agree).
    """
    if kind == "send":
        return 1.0
    ring = (size - 1) / size
    if not kind.startswith("all_reduce"):
        return ring
    return np.minimum(2.0 * ring, (size + 1) / size) if in_network_reduction else 2.0 * ring


def collective_s(
    curve: CollectiveCurve, rate_bytes_per_s: Any, *, moved_bytes: Any, size: Any
) -> Any:
    """Seconds of a collective that moves `moved_bytes` out of each of `size` ranks."""
    wire_s = moved_bytes / (rate_bytes_per_s * curve.rate)
    start_s = curve.launch_s + curve.step_s * np.log2(np.maximum(size, 2) / 2)
    return start_s + wire_s + np.sqrt(wire_s * curve.ramp_s)
