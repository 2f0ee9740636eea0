"""How long kernels and collectives take on a device: measured curves, and their nearest kin.

`matmul_s`, `grouped_matmul_s`, `attention_s`, `memory_bound_s` and `collective_s` take scalars or
columns and return seconds. The forms are in hardware/curves.py, the parameters in
data/efficiency.toml (measured) and data/kin.toml (devices and links without measurements). A device
or link that carries its own curves (measured on the machine at hand) is taken at these.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from meshwright.base.shipped import shipped
from meshwright.hardware import curves

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Gpu, Link

Evidence = Literal["measured", "scaled", "assumed"]
What = Literal["matmul", "experts", "attention", "memory"]

Curve = TypeVar(
    "Curve",
    curves.MatmulCurve,
    curves.ExpertsCurve,
    curves.AttentionCurve,
    curves.CollectiveCurve,
)

OPERAND_BYTES = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "mxfp8": 1.03125,  # one scale byte for 32 values
    "nvfp4": 0.5625,  # one scale byte for 16 values
}
# Where a device lacks a precision the product runs in the next of these that it has.
_FALLBACK = {
    "nvfp4": ("mxfp8", "fp8", "bf16", "fp16"),
    "mxfp8": ("fp8", "bf16", "fp16"),
    "fp8": ("bf16", "fp16"),
    "fp16": ("bf16",),
    "tf32": ("fp32",),
}
_IN_NODE = frozenset({"nvlink", "pcie", "xgmi", "hccs", "ici", "memory"})
_PASSES = {"all_reduce": 2.0}
_EVIDENCE: tuple[Evidence, ...] = ("measured", "scaled", "assumed")


def peak(gpu: Gpu, precision_name: str) -> tuple[str, float]:
    """The precision that the product really runs in, and its dense FLOP/s.

    A device without the asked precision uses the next wider one; bf16 on devices without it
    (V100) runs at the fp32 rate, as PyTorch does it.
    """
    wanted = (precision_name, *_FALLBACK.get(precision_name, ()), "fp32", "bf16", "fp16")
    name = next(p for p in wanted if p in gpu.peak_flops)
    return name, gpu.peak_flops[name]


def matmul_s(gpu: Gpu, precision_name: str, m: Any, n: Any, k: Any) -> Any:
    """Seconds of an m x k by k x n product on the device, host launch not included."""
    name, flops_per_s = peak(gpu, precision_name)
    curve = _matmul(gpu, name)
    roof = curves.Roof(flops_per_s=flops_per_s, bytes_per_s=gpu.memory_bytes_per_s)
    return curves.matmul_s(curve, roof, m, n, k, operand_bytes=OPERAND_BYTES[name])


def cast_s(gpu: Gpu, precision_name: str, elements: Any) -> Any:
    """Seconds to narrow a 16-bit operand of `elements` to this precision, 0 for 16 bits and wider.

    `matmul_s` takes its operands as already narrow.
    """
    name, flops_per_s = peak(gpu, precision_name)
    curve = _matmul(gpu, name)
    roof = curves.Roof(flops_per_s=flops_per_s, bytes_per_s=gpu.memory_bytes_per_s)
    return curves.cast_s(curve, roof, elements)


def grouped_matmul_s(
    gpu: Gpu, precision_name: str, tokens_per_expert: Any, n: Any, k: Any, experts: Any
) -> Any:
    """Seconds of `experts` products of tokens x k by k x n in one grouped kernel."""
    name, flops_per_s = peak(gpu, precision_name)
    curve = _matmul(gpu, name)
    roof = curves.Roof(flops_per_s=flops_per_s, bytes_per_s=gpu.memory_bytes_per_s)
    return curves.grouped_matmul_s(
        curve,
        _experts(gpu),
        roof,
        tokens_per_expert,
        n,
        k,
        experts=experts,
        operand_bytes=OPERAND_BYTES[name],
    )


def attention_s(
    gpu: Gpu,
    *,
    heads: Any,
    kv_heads: Any,
    head_dim: Any,
    queries: Any,
    keys: Any,
    causal: Any,
    batch: Any = 1,
    backward: bool = False,
    precision_name: str = "bf16",
) -> Any:
    """Seconds of one fused attention (FlashAttention-like), forward or backward.

    The packaged curves are those of 16 bits, whatever `precision_name` says. `head_dim` is the mean
    of key and value widths. The packaged backward kernel has no tables: it is the forward with 2.5
    times the FLOPs at 0.85 of the rate (arXiv 2307.08691 figures 4 to 6, read off the plots; arXiv
    2407.08608 figures 5 and 6 for Hopper).
    """
    curve, flops_per_s = _attention(gpu, precision_name)
    roof = curves.Roof(flops_per_s=flops_per_s, bytes_per_s=gpu.memory_bytes_per_s)
    forward = curves.attention_forward_s(
        curve,
        roof,
        rows=batch * heads * queries,
        keys=keys,
        head_dim=head_dim,
        kv_rows=batch * kv_heads * keys,
        causal=causal,
    )
    return curves.attention_backward_s(curve, forward) if backward else forward


def memory_bound_s(gpu: Gpu, moved_bytes: Any) -> Any:
    """Seconds of an elementwise kernel that reads and writes `moved_bytes` in all."""
    launch_s, share = _memory(gpu)
    return moved_bytes * (1.0 / (gpu.memory_bytes_per_s * share)) + launch_s


def collective_s(link: Link, kind: str, total_bytes: Any, size: Any) -> Any:
    """Seconds of one collective among `size` ranks that all lie on this one link level.

    `kind` is all_gather, reduce_scatter, all_reduce or all_to_all; `total_bytes` the whole tensor
    as nccl-tests counts it (gathered output, reduced input, send buffer of one rank). On links that
    carry their own curves also send, a hand-over to one other rank.
    """
    curve = _collective(link, kind)
    reduces = link.in_network_reduction and link.kind in _IN_NODE
    moved = total_bytes * curves.traffic(kind, size, in_network_reduction=reduces)
    seconds = curves.collective_s(curve, link_rate(link, size), moved_bytes=moved, size=size)
    if link.kind not in _IN_NODE:
        seconds = seconds + link.latency_s * (size - 1) * _PASSES.get(kind, 1.0)
    return np.where(np.asarray(size) > 1, seconds, 0.0)


def is_measured(link: Link, kind: str) -> bool:
    """Whether a collective was measured on the link itself."""
    return link.curves is not None and kind in link.curves


def link_rate(link: Link, size: Any) -> Any:
    """Bytes/s that each of `size` ranks can send at once on this level, before efficiencies."""
    rate = link.bytes_per_s / link.oversubscription
    if not link.peer_bytes_per_s:
        return rate
    return np.minimum(rate, link.peer_bytes_per_s * np.maximum(np.asarray(size) - 1, 1))


def evidence(gpu: Gpu, what: What, precision_name: str = "bf16") -> Evidence:
    """What the curve rests on: tables of this device, its kin's tables scaled, or judgement."""
    if gpu.curves is not None and (what != "experts" or not gpu.curves.partial):
        own_curve = {"matmul": gpu.curves.matmul, "attention": gpu.curves.attention}
        if own_curve.get(what, gpu.curves.memory):
            return "scaled" if what == "experts" else "measured"
    section: Any = _measured()[what]
    name, _ = peak(gpu, precision_name)
    own = section.get(gpu.name)
    if own is not None and (what != "matmul" or name in own):
        return "measured"
    if own is not None:
        return "scaled"
    donor = _kin(gpu.name, gpu.generation)
    return _EVIDENCE[max(1, _EVIDENCE.index(donor["evidence"]))]


def link_evidence(link: Link) -> Evidence:
    """The same for collectives on a link."""
    if link.curves is not None:
        return "measured"
    if link.kind not in _IN_NODE:
        return "assumed"
    nearest = _nearest_link(link.kind, link.bytes_per_s)
    kind, rate = nearest.split("-")
    if kind != link.kind:
        return "assumed"
    return "measured" if abs(log(link.bytes_per_s / (float(rate) * 1e9))) < 0.02 else "scaled"


def matmul_curve(gpu: Gpu, precision_name: str) -> tuple[str, curves.MatmulCurve, curves.Roof]:
    """The precision that products run in, their curve, and the roof that its shares are of."""
    name, flops_per_s = peak(gpu, precision_name)
    roof = curves.Roof(flops_per_s=flops_per_s, bytes_per_s=gpu.memory_bytes_per_s)
    return name, _matmul(gpu, name), roof


def attention_curve(gpu: Gpu, precision_name: str) -> tuple[curves.AttentionCurve, curves.Roof]:
    """The same for fused attention."""
    curve, flops_per_s = _attention(gpu, precision_name)
    return curve, curves.Roof(flops_per_s=flops_per_s, bytes_per_s=gpu.memory_bytes_per_s)


def collective_curve(link: Link, kind: str) -> curves.CollectiveCurve:
    """The curve of a collective on a link; its shares are of `link_rate`."""
    return _collective(link, kind)


_UNGROUPED = curves.ExpertsCurve(expert_rate=1.0, expert_rows0=0.0, routing_s=0.0, traffic=0.0)


def _experts(gpu: Gpu) -> curves.ExpertsCurve:
    """Grouped products as dense ones where all of a machine was measured, without groups."""
    whole = gpu.curves is not None and not gpu.curves.partial
    return _UNGROUPED if whole else _experts_curve(gpu.name, gpu.generation)


def _matmul(gpu: Gpu, precision: str) -> curves.MatmulCurve:
    """The device's own curve, or the packaged one."""
    if gpu.curves is not None and gpu.curves.matmul:
        own: curves.MatmulCurve = _nearest_precision(gpu.curves.matmul, precision)
        return own
    return _matmul_curve(gpu.name, gpu.generation, precision)


def _attention(gpu: Gpu, precision: str) -> tuple[curves.AttentionCurve, float]:
    """The same for attention, with the dense FLOP/s that its rate is a share of."""
    if gpu.curves is not None and gpu.curves.attention:
        name, flops_per_s = peak(gpu, precision)
        return _nearest_precision(gpu.curves.attention, name), flops_per_s
    _, flops_per_s = peak(gpu, "bf16" if "bf16" in gpu.peak_flops else "fp16")
    return _attention_curve(gpu.name, gpu.generation), flops_per_s


def _memory(gpu: Gpu) -> tuple[float, float]:
    """Launch seconds, and share of the memory rate."""
    if gpu.curves is not None and gpu.curves.memory is not None:
        return gpu.curves.memory.launch_s, gpu.curves.memory.memory
    return _memory_curve(gpu.name, gpu.generation)


def _collective(link: Link, operation: str) -> curves.CollectiveCurve:
    """The link's own curve, or the packaged one."""
    if is_measured(link, operation) and link.curves is not None:
        return link.curves[operation]
    return _collective_curve(link.kind, link.bytes_per_s, operation)


@lru_cache(maxsize=256)
def _matmul_curve(name: str, generation: str, precision: str) -> curves.MatmulCurve:
    measured = _measured()["matmul"]
    if name in measured:
        return _from(curves.MatmulCurve, _nearest_precision(measured[name], precision))
    kin = _kin(name, generation)
    curve = _from(curves.MatmulCurve, _nearest_precision(measured[kin["like"]], precision))
    factor = kin.get("matmul", 1.0)
    return replace(curve, rate=min(curve.rate * factor, 0.98))


def _nearest_precision(curves_by_precision: Any, precision: str) -> Any:
    """The nearest precision with a curve: shares of the peak carry over."""
    wanted = (precision, *_FALLBACK.get(precision, ()), "bf16", "fp32", *curves_by_precision)
    return curves_by_precision[next(p for p in wanted if p in curves_by_precision)]


@lru_cache(maxsize=64)
def _experts_curve(name: str, generation: str) -> curves.ExpertsCurve:
    return _from(curves.ExpertsCurve, _section("experts", name, generation))


@lru_cache(maxsize=64)
def _attention_curve(name: str, generation: str) -> curves.AttentionCurve:
    curve = _from(curves.AttentionCurve, _section("attention", name, generation))
    if name in _measured()["attention"]:
        return curve
    return replace(curve, rate=curve.rate * _kin(name, generation).get("attention", 1.0))


@lru_cache(maxsize=64)
def _memory_curve(name: str, generation: str) -> tuple[float, float]:
    """Launch seconds, and share of the memory rate."""
    own = _section("memory", name, generation)
    factor = 1.0 if name in _measured()["memory"] else _kin(name, generation).get("memory", 1.0)
    return own["launch_s"], min(own["memory"] * factor, 0.98)


def _section(what: What, name: str, generation: str) -> Any:
    """The table of the device itself, of its kin, or of the default device."""
    section = _measured()[what]
    like = _kin(name, generation)["like"]
    return section.get(name) or section.get(like) or section[_kin_table()["default"]]


def _kin(name: str, generation: str) -> Any:
    table = _kin_table()
    unknown = {"like": table["default"], "evidence": "assumed"}
    return table["device"].get(name) or table["generation"].get(generation) or unknown


@lru_cache(maxsize=256)
def _collective_curve(kind: str, bytes_per_s: float, operation: str) -> curves.CollectiveCurve:
    if kind not in _IN_NODE:
        network = _kin_table()["network"]
        rate = _kin_table()["network_rate"].get(kind, network["rate"])
        return replace(_from(curves.CollectiveCurve, {**network, "step_s": 0.0}), rate=rate)
    table = _measured()["collective"][_nearest_link(kind, bytes_per_s)]
    return _from(curves.CollectiveCurve, table.get(operation, table["all_to_all"]))


def _nearest_link(kind: str, bytes_per_s: float) -> str:
    """The measured link of the same kind (else NVLink) with the nearest rate."""
    known: list[str] = list(_measured()["collective"])
    same = [name for name in known if name.startswith(f"{kind}-")]
    same = same or [name for name in known if name.startswith("nvlink-")]
    return min(same, key=lambda name: abs(log(bytes_per_s / (float(name.split("-")[1]) * 1e9))))


def _from(curve: type[Curve], table: Any) -> Curve:
    """The curve in a table, whatever else the table says (errors, evidence, source)."""
    return curve(**{f.name: table[f.name] for f in fields(curve) if f.name in table})


@lru_cache(maxsize=1)
def _measured() -> Any:
    return _load("efficiency.toml")


@lru_cache(maxsize=1)
def _kin_table() -> Any:
    return _load("kin.toml")


def _load(name: str) -> Any:
    path = shipped("meshwright.hardware") / "data" / name
    return tomllib.loads(path.read_text(encoding="utf-8"))
