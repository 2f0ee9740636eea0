"""Idle time by what the host was doing meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.split.attribution import DATALOADER
from meshwright.diagnose.split.idle import DEPENDENCY, LATE, LATENCY, SHORT, next_launches
from meshwright.diagnose.split.intervals import Spans, clip, intersect, merged, total
from meshwright.diagnose.split.work import names_like
from meshwright.diagnose.trace.columns import Host

if TYPE_CHECKING:
    from meshwright.diagnose.split.facts.view import View
    from meshwright.diagnose.trace.columns import Longs

IN_PROCESS = re.compile(r"_SingleProcessDataLoaderIter")
SCALARS = re.compile(r"^aten::(item|_local_scalar_dense|nonzero|is_nonzero)$")
GRAPH = re.compile(r"GraphLaunch")
COPY_CALL = re.compile(r"Mem(cpy|set)")
WHILE_IDLE = ("checkpoint", "gc", "compile", "evaluation", "logging", "profiler")


def waiting_facts(view: View) -> dict[str, float]:
    """Figures of waiting; a phase that the trace does not name is left out."""
    idle = view.all_idle()
    found = {
        f"{name}_us": total(intersect(idle, view.host.phases[name])) / 1000
        for name in WHILE_IDLE
        if name in view.host.phases
    }
    if "preprocess" in view.host.phases:
        preparing = intersect(view.idle[LATE], view.host.phases["preprocess"])
        found["preprocess_us"] = total(preparing) / 1000
    found["long_gap_us"] = _long_gaps_ns(view) / 1000
    return found | _loading(view) | _syncs(view) | _allocating(view) | _graphs(view) | _calls(view)


LONG_GAP_NS = 1_000_000  # launching a kernel, or the few that an operator needs, takes far less


def _long_gaps_ns(view: View) -> int:
    """Idle time behind late and slow launches in gaps longer than launching takes."""
    gaps = merged(view.idle[LATE], view.idle[LATENCY])
    length = gaps.end - gaps.start
    return int(length[length > LONG_GAP_NS].sum())


def _loading(view: View) -> dict[str, float]:
    loader = view.host.dataloader
    if not loader.count:
        return {}
    ours = view.marks(IN_PROCESS, Host.ANNOTATION)
    operators = view.trace.operators
    length = operators.end_ns[loader.rows] - operators.start_ns[loader.rows]
    return {
        "loader_in_process_us": total(intersect(view.idle[DATALOADER], ours)) / 1000,
        "loader_calls": float(loader.count),
        "loader_median_us": float(np.median(length)) / 1000,
        "loader_longest_us": int(length.max()) / 1000,
    }


def _syncs(view: View) -> dict[str, float]:
    start, end = _waits(view)
    held = (start < view.window[1]) & (end > view.window[0])
    spans = clip(view.host.sync_calls.spans, *view.window)
    return {
        "sync_calls": float(held.sum()),
        "sync_us": total(spans) / 1000,
        "sync_idle_us": _after_wait_ns(view, start, end) / 1000,
    }


def _waits(view: View) -> tuple[Longs, Longs]:
    """Starts and ends of what waits for the device, each in no other, in order."""
    trace = view.trace
    operators = trace.operators
    rows = np.flatnonzero(operators.kind == Host.OPERATOR)
    rows = rows[names_like(trace.names, operators.name[rows], SCALARS)]
    calls = view.host.sync_calls.rows
    start = np.concatenate((operators.start_ns[rows], trace.calls.start_ns[calls]))
    end = np.concatenate((operators.end_ns[rows], trace.calls.end_ns[calls]))
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    if len(start) == 0:
        return start, end
    reach = np.concatenate(([start[0] - 1], np.maximum.accumulate(end)[:-1]))
    return start[end > reach], end[end > reach]


def _after_wait_ns(view: View, start: Longs, end: Longs) -> int:
    """Idle time of launches that came late because the host had waited for the work before."""
    late, latency = view.idle[LATE], view.idle[LATENCY]
    if len(start) == 0 or not late:
        return 0
    first = np.searchsorted(end, late.start)  # the first wait that ends in the gap
    held = first < len(end)
    first[~held] = 0
    held &= (end[first] <= late.end) & (start[first] < late.start)
    place = np.searchsorted(latency.start, late.end[held])
    place = place[place < len(latency.start)]
    follows = np.isin(latency.start[place], late.end[held])
    after = latency.end[place[follows]] - latency.start[place[follows]]
    return int((late.end - late.start)[held].sum()) + int(after.sum())


def _allocating(view: View) -> dict[str, float]:
    calls = view.trace.calls
    found = {}
    for name, doing in (("malloc", view.host.malloc), ("free", view.host.free)):
        starts = calls.start_ns[doing.rows]
        held = (starts >= view.window[0]) & (starts < view.window[1])
        found[f"{name}_calls"] = float(held.sum())
    found["malloc_us"] = total(clip(view.host.malloc_free.spans, *view.window)) / 1000
    return found


def _graphs(view: View) -> dict[str, float]:
    calls = view.trace.calls
    launches = names_like(view.trace.names, calls.name, GRAPH)
    if not launches.any():
        return {"graph_launches": 0.0}
    held = launches & (calls.start_ns >= view.window[0]) & (calls.start_ns < view.window[1])
    waited = 0
    for owner in (DEPENDENCY, SHORT):
        spans: Spans = view.idle[owner]
        row, _ = next_launches(view.trace, view.work, spans.start)
        by_graph = (row >= 0) & launches[np.maximum(row, 0)]
        waited += int((spans.end - spans.start)[by_graph].sum())
    return {"graph_launches": float(held.sum()), "graph_wait_us": waited / 1000}


def _calls(view: View) -> dict[str, float]:
    """The host in calls that copy: long ones block it."""
    calls = view.trace.calls
    copies = names_like(view.trace.names, calls.name, COPY_CALL)
    length = (calls.end_ns - calls.start_ns)[copies]
    blocked = int(length[length > BLOCKED_NS].sum())
    return {"copy_calls_blocked_us": blocked / 1000}


BLOCKED_NS = 100_000  # a copy that is only queued takes some ten microseconds
