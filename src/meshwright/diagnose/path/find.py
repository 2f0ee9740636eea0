"""The critical path of a rank, and what a step would take if something took no time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.path.device import device_side, launched_by
from meshwright.diagnose.path.graph import Graph
from meshwright.diagnose.path.host import doing_of, host_side, rows_that_matter
from meshwright.diagnose.path.named import longest_of
from meshwright.diagnose.path.noun import Path
from meshwright.diagnose.path.onhost import host_events
from meshwright.diagnose.path.play import order_of, played, questions
from meshwright.diagnose.path.walk import pieces_of
from meshwright.diagnose.split.intervals import clip, total
from meshwright.diagnose.split.work import COMMUNICATION
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.path.graph import Bools
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.split.intervals import Spans
    from meshwright.diagnose.trace.columns import Longs, Trace

MOST_NODES = 8_000  # events and launches that are looked at, unless one step has more
MOST_IN_STEP = 400_000  # of a single step
MOST_GROUPS = 4  # process groups with a what-if of their own
GROUP = re.compile(r"\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steps that are looked at, nanoseconds since the trace's origin; `of` all of them."""

    low: int
    high: int
    host_end: int
    steps: int
    of: int
    first: str
    left: tuple[Left, ...] = ()


def critical_path(trace: Trace, rank: Rank) -> Path | None:
    """The chain that the steps of a rank hang on; None where the device did nothing.

    The graph has calls in the order of their threads, launches, the order of streams, the waits
    that c10d's calls imply, waits between streams where one goes on just as the other is done, and
    calls that return when the device is done. Long traces are looked at in part: as many steps as
    give `MOST_NODES`, around the step of median length; `Path.left` says so.
    """
    window = window_of(trace, rank)
    if window is None:
        return None
    graph = graph_of(trace, window, on_host=rank.computes_on == "host")
    if len(graph.device) == 0:
        return None
    least, groups = least_of(trace, graph), _groups(trace, graph)
    pieces = pieces_of(graph, least)
    sums: dict[str, int] = {}
    for piece in pieces:
        sums[piece.kind] = sums.get(piece.kind, 0) + piece.end_ns - piece.start_ns
    order = order_of(graph)
    answers = {
        name: played(graph, weights, order) / 1000 / window.steps
        for name, weights in questions(graph, least_ns=least, groups=groups)
    }
    length = graph.window_ns / 1000
    return Path(
        window_us=length,
        by_kind_us={kind: ns / 1000 for kind, ns in sorted(sums.items(), key=lambda s: -s[1])},
        what_if_us=answers,
        longest=longest_of(trace, graph, pieces, low=window.low),
        steps=window.steps,
        first_step=window.first,
        step_us=length / window.steps,
        left=window.left,
    )


def window_of(trace: Trace, rank: Rank) -> Window | None:
    """The whole span of the device, or as many of its steps as are not too many events."""
    device = trace.device
    if len(device) == 0:
        return None
    steps = rank.device_steps
    if not steps:
        low, high = int(device.start_ns[0]), int(device.end_ns.max())
        return _cut(trace, Window(low=low, high=high, host_end=low, steps=1, of=1, first=""))
    start = np.array([round(s.start_us * 1000) for s in steps], dtype=np.int64) - trace.origin_ns
    length = np.array([round(s.dur_us * 1000) for s in steps], dtype=np.int64)
    host = np.array(
        [round((s.start_us + s.dur_us - max(s.device_lag_us or 0.0, 0.0)) * 1000) for s in steps],
        dtype=np.int64,
    )
    first, count = _chosen(trace, start, length)
    last = first + count - 1
    left: tuple[Left, ...] = ()
    if count < len(steps):
        left = (
            Left(
                what="steps without a critical path",
                count=len(steps) - count,
                time_us=float(length.sum() - length[first : last + 1].sum()) / 1000,
                reason=f"{count} of median length stand for all of them",
            ),
        )
    window = Window(
        low=int(start[first]),
        high=int(start[last] + length[last]),
        host_end=int(host[last]) - trace.origin_ns,
        steps=count,
        of=len(steps),
        first=steps[first].name,
        left=left,
    )
    return _cut(trace, window)


def _chosen(trace: Trace, start: Longs, length: Longs) -> tuple[int, int]:
    """First and number of the steps to look at: those of which the mean is nearest the median."""
    events = np.searchsorted(trace.device.start_ns, [start[0], start[-1] + length[-1]])
    each = max(2 * int(events[1] - events[0]) // len(start), 1)
    count = max(1, min(len(start), MOST_NODES // each))
    if count == len(start):
        return 0, count
    sums = np.concatenate(([0], np.cumsum(length)))
    means = (sums[count:] - sums[:-count]) / count
    return int(np.argmin(np.abs(means - np.median(length)))), count


def _cut(trace: Trace, window: Window) -> Window | None:
    """The window, shortened where a single step has too many events."""
    from dataclasses import replace

    if window.high <= window.low:
        return None
    first, last = np.searchsorted(trace.device.start_ns, (window.low, window.high))
    if 2 * (last - first) <= MOST_IN_STEP:
        return window
    high = int(trace.device.start_ns[first + MOST_IN_STEP // 2])
    left = Left(
        what="device events without a critical path",
        count=int(last - first - MOST_IN_STEP // 2),
        time_us=(window.high - high) / 1000,
        reason=f"more than {MOST_IN_STEP // 2} events in a step",
    )
    return replace(
        window, high=high, host_end=min(window.host_end, high), left=(*window.left, left)
    )


def graph_of(trace: Trace, window: Window, *, on_host: bool = False) -> Graph:
    """The graph of a window; `on_host` where the host itself computes."""
    device = trace.device
    low, high = window.low, window.high
    last = int(np.searchsorted(device.start_ns, high))
    rows = np.flatnonzero(device.end_ns[:last] > low)
    doing = doing_of(trace)
    none = np.zeros(0, dtype=np.int64)
    calls = none if on_host else rows_that_matter(trace, device.correlation[rows], low, high)
    call = launched_by(trace, rows, calls)
    of_call = np.full(len(calls), -1, dtype=np.int64)
    of_call[call[call >= 0]] = np.flatnonzero(call >= 0)
    if on_host:
        theirs = host_events(trace, rows, doing, low=low, high=high)
    else:
        theirs = device_side(trace, rows, calls, low=low, high=high, call=call)
    ours = host_side(
        trace, calls, doing, low=low, launches=of_call >= 0, ends=theirs.end_ns, of_call=of_call
    )
    graph = Graph(
        window_ns=high - low,
        host=ours,
        device=theirs,
        closing=0,
        tail_ns=0,
        tail_doing_ns={},
        on_host=on_host,
    )
    return _closed(trace, window, graph, doing)


def _closed(trace: Trace, window: Window, graph: Graph, doing: Mapping[str, Spans]) -> Graph:
    """The graph with what came last: the host's way to the end of its last step.

    Where the host did nothing that the trace shows after the device's last event, it waited for it.
    """
    from dataclasses import replace

    host, device = graph.host, graph.device
    reached = int(device.end_ns.max(initial=0))
    end = graph.window_ns
    if reached == end:
        end = min(max(window.host_end - window.low, 0), end)
    over = np.flatnonzero(host.end_ns <= end)
    closing, since = 0, 0
    if len(over):
        call = int(over[np.argmax(host.end_ns[over])])
        closing, since = 2 + 2 * call, int(host.end_ns[call])
    low = window.low
    if since < reached < end and (graph.on_host or _last_seen(trace, low + end) - low <= reached):
        closing, since = 1 + 2 * len(host) + int(np.argmax(device.end_ns)), reached
    return replace(
        graph,
        closing=closing,
        tail_ns=max(end - since, 0),
        tail_doing_ns={k: total(clip(s, low + since, low + end)) for k, s in doing.items()},
    )


def _last_seen(trace: Trace, end: int) -> int:
    """When the last operator was over before the end of the last step, which covers it."""
    operators = trace.operators
    inside = operators.end_ns[: int(np.searchsorted(operators.start_ns, end))]
    return int(inside[inside < end].max(initial=0))


def least_of(trace: Trace, graph: Graph) -> Longs:
    """For each event the shortest with its name and message, over the whole trace."""
    device = trace.device
    rows = graph.device.row
    length = graph.device.end_ns - graph.device.start_ns
    comm = graph.device.kind == COMMUNICATION
    if not comm.any():
        return length
    names = np.unique(device.name[rows[comm]])
    alike = np.flatnonzero(np.isin(device.name, names) & (device.end_ns > device.start_ns))
    if len(alike) == 0:
        return length
    width = len(trace.messages) + 1
    key = device.name.astype(np.int64) * width + device.message + 1
    keys, where = np.unique(key[alike], return_inverse=True)
    least = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(least, where, (device.end_ns - device.start_ns)[alike])
    found = least[np.minimum(np.searchsorted(keys, key[rows]), len(keys) - 1)]
    return np.where(comm, np.minimum(found, length), length)


def _groups(trace: Trace, graph: Graph) -> Mapping[str, Bools]:
    """Events of the process groups that communicate longest."""
    message = trace.device.message[graph.device.row]
    length = graph.device.end_ns - graph.device.start_ns
    group_of = np.array([m.group for m in trace.messages] + [""])[message]
    told = np.unique(group_of[message >= 0])
    sums = {str(g): int(length[group_of == g].sum()) for g in told if GROUP.search(str(g))}
    chosen = sorted(sums, key=lambda g: -sums[g])[:MOST_GROUPS]
    return {g: np.asarray((group_of == g) & (message >= 0), dtype=np.bool_) for g in chosen}
