"""Curves of collectives inside a node, and the share of the network's rate between nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.hardware import curves, efficiency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.across.table import Doubles
    from meshwright.diagnose.calibrate.noun import Transfer
    from meshwright.hardware.cluster import Cluster, Link

APART = 4.0  # sizes from which latency and rate can be told from each other
MOST_RATE = 0.98  # of the link's, that one size alone makes anybody expect of larger ones
LEAST_BYTES = 1e6  # less is latency, between nodes
OF_RATE = {  # the share of the stack that scales a collective between nodes
    "all_gather": "dp_rate",
    "reduce_scatter": "dp_rate",
    "all_reduce": "dp_rate",
    "all_to_all": "ep_rate",
    "send": "p2p_rate",
}


def inside(transfer: Transfer, cluster: Cluster) -> bool:
    """Whether a group lies within a node; where nobody tells, whether it could."""
    if transfer.nodes is None:
        return transfer.size <= cluster.gpus_per_node
    return transfer.nodes == 1


def collective_curves(
    transfers: Sequence[Transfer], cluster: Cluster
) -> dict[str, curves.CollectiveCurve]:
    """Curves of the kinds that were measured inside nodes, on the innermost link."""
    link = cluster.links[0]
    found: dict[str, curves.CollectiveCurve] = {}
    for kind in sorted({t.kind for t in transfers}):
        mine = [t for t in transfers if t.kind == kind and inside(t, cluster)]
        curve = fit_collective(mine, link, kind) if mine else None
        if curve is not None:
            found[kind] = curve
    return found


def fit_collective(
    transfers: Sequence[Transfer], link: Link, kind: str
) -> curves.CollectiveCurve | None:
    """alpha + bytes / beta through the points; of one size alone the rate, with the known latency.

    Least squares of relative errors, each point as heavy as its collectives. What a doubling of the
    group adds stays as it was.
    """
    base = efficiency.collective_curve(link, kind)
    size, moved, seconds, weight = _columns(transfers, link, kind)
    rate = np.asarray(efficiency.link_rate(link, size), float)
    wire = moved / rate
    steps = base.step_s * np.log2(np.maximum(size, 2.0) / 2.0)
    if moved.max() < APART * moved.min():
        return _one_size(base, wire, steps, seconds, weight)
    known = np.minimum(steps, 0.5 * seconds)
    left = np.stack([np.ones_like(wire), wire], axis=1) / seconds[:, None]
    right = (seconds - known) / seconds
    scale = np.sqrt(weight)
    (alpha, per_wire), *_ = np.linalg.lstsq(left * scale[:, None], right * scale, rcond=None)
    if alpha < 0:
        alpha = 0.0
        per_wire = float((weight * left[:, 1] * right).sum() / (weight * left[:, 1] ** 2).sum())
    if per_wire <= 0:
        return None
    return replace(base, launch_s=float(alpha), rate=float(1.0 / per_wire), ramp_s=0.0)


def _one_size(
    base: curves.CollectiveCurve, wire: Doubles, steps: Doubles, seconds: Doubles, weight: Doubles
) -> curves.CollectiveCurve:
    """The share of the rate at which the known curve takes as long, latency or not."""
    beyond = seconds - base.launch_s - steps  # = wire / rate + sqrt(wire / rate * ramp)
    if (beyond <= 0.2 * seconds).any():
        share = float(np.average(wire / seconds, weights=weight))
        return replace(base, launch_s=0.0, step_s=0.0, ramp_s=0.0, rate=share)
    root = 0.5 * (-np.sqrt(base.ramp_s) + np.sqrt(base.ramp_s + 4.0 * beyond))
    rate = float(np.average(wire / root**2, weights=weight))
    if rate <= MOST_RATE:
        return replace(base, rate=rate)
    faster = float(np.average(wire / beyond, weights=weight))  # the known ramp is too slow for it
    rate = max(faster, MOST_RATE)
    ramp = np.maximum(beyond - wire / rate, 0.0) ** 2 / (wire / rate)
    return replace(base, rate=rate, ramp_s=float(np.average(ramp, weights=weight)))


def _columns(transfers: Sequence[Transfer], link: Link, kind: str) -> tuple[Doubles, ...]:
    reduces = link.in_network_reduction and link.kind in ("nvlink", "xgmi")
    size = np.array([t.size for t in transfers], float)
    total = np.array([t.bytes for t in transfers], float)
    moved = total * curves.traffic(kind, size, in_network_reduction=reduces)
    seconds = np.array([t.seconds for t in transfers], float)
    return size, moved, seconds, np.array([t.points for t in transfers], float)


def network_shares(transfers: Sequence[Transfer], cluster: Cluster) -> dict[str, float]:
    """ "scale_out", the share of the network's rate that gradients reach, and what others reach.

    A ring through all ranks brings every rank's port, and waits for a hop at each of its steps
    (cost/collectives.py); empty where nothing large was measured between nodes.
    """
    if len(cluster.links) < 2:
        return {}
    shares: dict[str, list[tuple[float, float]]] = {}
    for t in transfers:
        share = _network_share(t, cluster)
        if share is not None and t.kind in OF_RATE:
            shares.setdefault(OF_RATE[t.kind], []).append((share, t.points * t.bytes))
    means = {
        name: float(np.average([s for s, _ in found], weights=[w for _, w in found]))
        for name, found in shares.items()
    }
    if not means:
        return {}
    first = means.get("dp_rate", max(means.values()))
    return {"scale_out": first} | {name: share / first for name, share in means.items()}


def _network_share(transfer: Transfer, cluster: Cluster) -> float | None:
    if inside(transfer, cluster) or transfer.bytes < LEAST_BYTES:
        return None
    outer = cluster.links[1:]
    rate = min(link.bytes_per_s / link.oversubscription for link in outer)
    hop_s = max(link.latency_s for link in outer)
    size, passes = transfer.size, 2.0 if transfer.kind == "all_reduce" else 1.0
    if transfer.kind == "send":
        ports, moved, waited_s = 1.0, transfer.bytes, hop_s
    else:
        nodes = transfer.nodes or -(-size // cluster.gpus_per_node)
        ports = max(size / nodes, 1.0)
        moved = passes * transfer.bytes * (size - 1) / size
        waited_s = passes * hop_s * (size - 1)
    wire_s = transfer.seconds - waited_s
    return moved / (ports * rate * wire_s) if wire_s > 0.2 * transfer.seconds else None
