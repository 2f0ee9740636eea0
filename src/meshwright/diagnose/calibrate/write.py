"""A calibration as the text of a cluster file, see hardware/table.py and measured_table.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from meshwright.base.encode import plain, to_toml
from meshwright.base.errors import MeshwrightError
from meshwright.diagnose.calibrate.links import collective_curves, network_shares
from meshwright.hardware import catalogue
from meshwright.hardware.measured import Curves, OperatorCurve, Piece

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.calibrate.noun import Calibration, Coefficient
    from meshwright.hardware.cluster import Cluster, Gpu, Host, Link
    from meshwright.hardware.measured import MemoryCurve, Overheads

GIB = 2.0**30
HEAD = """\
# Written by `meshwright diagnose --calibrate` from traces of a run. Use it as
#   meshwright predict ... --cluster FILE      or      [cluster] path = "FILE" in a plan.toml
# Shares are of the rates in [gpu] and [[links]]; what traces do not tell stays as it was known.
"""
MOST_EVIDENCE = 60


def cluster_text(calibration: Calibration, *, base: Cluster | None = None) -> str:
    """TOML that `hardware.file.read_cluster` reads: `base` with what was measured in its place.

    `base` is the cluster that ran, by default nodes of the catalogue with the traces' device.
    MeshwrightError where the traces tell nothing, or of which device they are.
    """
    cluster = base or _assumed(calibration)
    measured = measured_table(calibration, cluster)
    return HEAD + "\n" + to_toml(_rounded(_table(cluster) | {"measured": measured}))


def _assumed(calibration: Calibration) -> Cluster:
    """Nodes of the catalogue that hold the ranks of the traces."""
    gpu = calibration.gpu
    if gpu is None:
        device = f"{calibration.gpu_name!r} is" if calibration.gpu_name else "the device is"
        raise MeshwrightError(
            f"{device} in no catalogue: nothing can be held against its peaks",
            hint="name the cluster that ran: --plan plan.toml",
        )
    full = catalogue.cluster(gpu.name, nodes=1).gpus_per_node
    per_node = calibration.gpus_per_node or full
    nodes = max(-(-calibration.num_gpus // per_node), 1)
    try:
        return catalogue.cluster(f"{gpu.name}:{per_node}", nodes=nodes)
    except MeshwrightError:  # the host lists devices that no node of the catalogue has
        nodes = max(-(-calibration.num_gpus // full), 1)
        return catalogue.cluster(gpu.name, nodes=nodes)


def measured_table(calibration: Calibration, cluster: Cluster) -> dict[str, Any]:
    """The [measured] table over that of the cluster, if it has one."""
    collectives = collective_curves(calibration.transfers, cluster)
    network = network_shares(calibration.transfers, cluster)
    kernels = calibration.matmul or calibration.attention or calibration.memory
    if not (kernels or collectives or network):
        raise MeshwrightError(
            "the traces calibrate nothing: they have no shapes of products, and no collectives "
            "that all ranks entered together",
            hint="profile with record_shapes=True, on all ranks, over ten steps or more",
        )
    table: dict[str, Any] = plain(_curves(calibration, cluster))
    known = dict(cluster.links[0].curves or {}) | collectives
    whole = table.get("partial") is not True
    if known:
        table["collectives"] = plain(known)
    if cluster.overheads is not None:
        table["overheads"] = plain(_overheads(calibration, cluster.overheads))
    if not whole and (told := dict(cluster.shares or {}) | network | _shares(calibration)):
        table["shares"] = told
    table["evidence"] = [_evidence(c) for c in calibration.coefficients[:MOST_EVIDENCE]]
    return table


def _curves(calibration: Calibration, cluster: Cluster) -> Curves:
    """The curves of the cluster's device with the measured ones in their place."""
    count = len({s for c in calibration.coefficients for s in c.sources})
    source = f"meshwright diagnose --calibrate: {count} traces of {calibration.gpu_name or 'a CPU'}"
    date = datetime.now(tz=UTC).date().isoformat()
    known = cluster.gpu.curves or Curves(date=date, source=source, partial=True)
    return replace(
        known,
        date=date,
        source=source,
        matmul={**known.matmul, **calibration.matmul},
        attention={**known.attention, **calibration.attention},
        memory=_memory(calibration, known),
        pieces=_pieces(calibration, known),
    )


def _pieces(calibration: Calibration, known: Curves) -> dict[str, Piece]:
    """The pieces that were timed one by one, as much slower as all of them were in the run."""
    beside = calibration.beside_plan
    between = (beside.between if beside else None) or 1.0
    update = (beside.update if beside else None) or 1.0

    def slower(curve: OperatorCurve, ratio: float) -> OperatorCurve:
        return replace(curve, seconds=tuple(s * ratio for s in curve.seconds))

    ratios = {name: update if name == "update" else between for name in known.pieces}
    return {
        name: Piece(
            forward=slower(piece.forward, ratios[name]),
            backward=slower(piece.backward, ratios[name]),
        )
        for name, piece in known.pieces.items()
    }


def _memory(calibration: Calibration, known: Curves) -> MemoryCurve | None:
    """The measured rate, unless the kernels between products were held against the plan."""
    beside = calibration.beside_plan
    if beside and beside.between is not None:
        return known.memory
    return calibration.memory or known.memory


def _overheads(calibration: Calibration, known: Overheads) -> Overheads:
    """The host's time with what a step took more of it, or less."""
    beside = calibration.beside_plan
    if beside is None or beside.host_s is None:
        return known
    return replace(known, step_s=max(known.step_s + beside.host_s, 0.0))


def _shares(calibration: Calibration) -> dict[str, float]:
    """Communication of tp and pp that computation hid; passes over memory between products."""
    hidden = {f"overlap_{axis}": share for axis, share in calibration.hidden.items()}
    found: dict[str, float] = {
        name: min(max(hidden[name], 0.0), 1.0)
        for name in ("overlap_tp", "overlap_pp")
        if name in hidden
    }
    return found | dict(calibration.beside_plan.stack if calibration.beside_plan else {})


def _evidence(coefficient: Coefficient) -> dict[str, Any]:
    values = ", ".join(f"{name} {value:.4g}" for name, value in coefficient.values.items())
    files = coefficient.sources
    told = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more" if files else ""
    note = f"; {coefficient.note}" if coefficient.note else ""
    return {
        "what": f"{coefficient.what}: {values}",
        "points": max(coefficient.points, 1),
        "spread": float(coefficient.spread),
        "confidence": coefficient.confidence,
        "source": told + note,
    }


def _table(cluster: Cluster) -> dict[str, Any]:
    """The cluster without measurements, as hardware/table.py reads it."""
    nodes = max(cluster.num_gpus // cluster.gpus_per_node, 1)
    table: dict[str, Any] = {
        "name": f"{cluster.name}, as traces show it" if cluster.name else "as traces show it",
        "nodes": nodes,
        "gpus_per_node": cluster.gpus_per_node,
    }
    if cluster.price_per_gpu_hour:
        table["price_per_gpu_hour"] = cluster.price_per_gpu_hour
    return table | {
        "gpu": _gpu(cluster.gpu),
        "host": _host(cluster.host),
        "links": [_link(link) for link in cluster.links],
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return _positive(
        {
            "name": gpu.name,
            "generation": gpu.generation,
            "sm_count": gpu.sm_count,
            "memory_gib": gpu.memory_bytes / GIB,
            "memory_gb_per_s": gpu.memory_bytes_per_s / 1e9,
            "peak_tflops": {name: rate / 1e12 for name, rate in gpu.peak_flops.items()},
        }
    )


def _host(host: Host) -> dict[str, Any]:
    return _positive(
        {
            "memory_gb": host.memory_bytes / 1e9,
            "cores": host.cores,
            "gb_per_s_per_gpu": host.bytes_per_s_per_gpu / 1e9,
            "storage_gb_per_s": host.storage_bytes_per_s / 1e9,
        }
    )


def _link(link: Link) -> dict[str, Any]:
    return _positive(
        {
            "name": link.name,
            "kind": link.kind,
            "domain": link.domain,
            "gb_per_s": link.bytes_per_s / 1e9,
            "latency_us": link.latency_s * 1e6,
            "oversubscription": link.oversubscription,
            "peer_gb_per_s": link.peer_bytes_per_s / 1e9,
            "nics_per_node": link.nics_per_node,
            "in_network_reduction": link.in_network_reduction,
        }
    )


def _positive(table: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is zero or unknown."""
    return {name: value for name, value in table.items() if value}


def _rounded(value: Any) -> Any:
    """Figures to five digits."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
