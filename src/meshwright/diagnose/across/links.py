"""Bus bandwidth of each group, from the last to arrive, and groups that fall behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.across.bus import bus_factor, kind_of, payload_bytes
from meshwright.diagnose.across.noun import LinkRate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.diagnose.across.table import Kind, Lane, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.plan.job import Job

SLOW = 0.6
USUAL_NODE = 8
MOST = 300
LEAST_BYTES = 65_536  # less is latency, which says nothing about a link


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Transfers of one group with one kind of message: tenth, median and ninetieth percentile."""

    lane: Lane
    kind: Kind
    bytes: int
    count: int
    low_ns: float
    median_ns: float
    high_ns: float


def cells_of(rows: Rows, waits: Waits) -> list[Cell]:
    """The cells of all collectives with a size whose members are all there."""
    sized = [payload_bytes(k.message) if k.message else None for k in rows.kinds]
    has = np.array([bool(s) for s in sized], bool)
    at = np.flatnonzero(waits.complete & has[waits.kind]) if len(waits) else np.zeros(0, int)
    key = waits.lane[at].astype(np.int64) * len(rows.kinds) + waits.kind[at]
    order = np.lexsort((waits.transfer_ns[at], key))
    key, transfer = key[order], waits.transfer_ns[at][order]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(key)) + 1, [len(key)]])
    found = []
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if high > low:
            lane, kind = divmod(int(key[low]), len(rows.kinds))
            tenth, middle, ninetieth = np.percentile(transfer[low:high], [10, 50, 90]).tolist()
            cell = Cell(
                lane=rows.lanes[lane],
                kind=rows.kinds[kind],
                bytes=sized[kind] or 0,
                count=high - low,
                low_ns=tenth,
                median_ns=middle,
                high_ns=ninetieth,
            )
            found.append(cell)
    return found


def members_of_cell(cell: Cell) -> tuple[int, ...]:
    """The ranks that meet in it."""
    return cell.lane.pair or cell.lane.members


def links_of(
    cells: Sequence[Cell],
    *,
    axes: Mapping[str, str],
    hosts: Mapping[int, str],
    job: Job | None,
) -> tuple[LinkRate, ...]:
    """Rates of groups that have a size and members: the slow ones first, then by time spent."""
    shown = [(c, spans_nodes(members_of_cell(c), hosts, job)) for c in cells if members_of_cell(c)]
    peers: dict[tuple[object, ...], list[float]] = {}
    for cell, _ in shown:
        peers.setdefault(_shape(cell, hosts), []).append(cell.median_ns)
    found = [
        (_rate(cell, spans, peers[_shape(cell, hosts)], axes, job), cell.median_ns * cell.count)
        for cell, spans in shown
    ]
    found.sort(key=lambda item: (not item[0].slow, -item[1]))
    return tuple(rate for rate, _ in found[:MOST])


def _shape(cell: Cell, hosts: Mapping[int, str]) -> tuple[object, ...]:
    """What groups must have in common to be held against each other, the nodes they touch too.

    Where no host is named, nodes are taken for eight ranks each: that says nothing of a group, but
    keeps those within from those between nodes.
    """
    message, members = cell.kind.message, members_of_cell(cell)
    kind = kind_of(message) if message else ""
    nodes = {hosts.get(m) or m // USUAL_NODE for m in members}
    return kind, cell.bytes, len(members), len(nodes)


def _rate(
    cell: Cell,
    spans: bool | None,
    peers: Sequence[float],
    axes: Mapping[str, str],
    job: Job | None,
) -> LinkRate:
    message = cell.kind.message
    kind, members = kind_of(message) if message else "", members_of_cell(cell)
    others = sorted(peers)
    others.remove(cell.median_ns)
    of_peers = float(np.median(others)) / cell.median_ns if others else None
    of_cluster = _of_cluster(cell, kind, members, job)
    matters = cell.bytes >= LEAST_BYTES
    return LinkRate(
        collective=message.collective if message else cell.kind.kernel,
        group=cell.lane.group,
        axis=axes.get(cell.lane.group, ""),
        ranks=members,
        bytes=cell.bytes,
        count=cell.count,
        busbw_GBps=cell.bytes * bus_factor(kind, len(members)) / max(cell.median_ns, 1.0),
        spread=cell.high_ns / max(cell.low_ns, 1.0),
        spans_nodes=spans,
        transfer_us=cell.median_ns / 1000.0,
        of_peers=of_peers,
        of_cluster=of_cluster,
        slow=matters and any(s is not None and s < SLOW for s in (of_peers, of_cluster)),
    )


def spans_nodes(members: Sequence[int], hosts: Mapping[int, str], job: Job | None) -> bool | None:
    """Whether a group reaches over nodes; None where neither traces nor a job say."""
    named = {hosts.get(m, "") for m in members}
    if "" not in named:
        return len(named) > 1
    if job is None:
        return None
    return len({m // job.cluster.gpus_per_node for m in members}) > 1


def _of_cluster(cell: Cell, kind: str, members: Sequence[int], job: Job | None) -> float | None:
    """The share of what the job's cluster should reach at this size."""
    if job is None or len(members) < 2:
        return None
    from meshwright.cost import collectives

    stride = min(b - a for a, b in zip(sorted(members), sorted(members)[1:], strict=False))
    group = collectives.place(job.cluster, len(members), max(stride, 1))
    times: dict[str, Callable[[Any, Any], Any]] = {
        "all_reduce": collectives.all_reduce_s,
        "all_gather": collectives.all_gather_s,
        "reduce_scatter": collectives.all_gather_s,
        "all_to_all": collectives.all_to_all_s,
        "send": collectives.point_to_point_s,
        "recv": collectives.point_to_point_s,
    }
    if kind not in times:
        return None
    expected = float(times[kind](group, float(cell.bytes)))
    return expected * 1e9 / max(cell.median_ns, 1.0)
