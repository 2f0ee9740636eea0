"""The host's side of a window: which calls matter, and what each one starts after."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.path.graph import HostSide
from meshwright.diagnose.path.noun import LOADING
from meshwright.diagnose.split.host import SYNC, host_of
from meshwright.diagnose.split.intervals import NOTHING, Spans, merged, within
from meshwright.diagnose.split.work import names_like

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.path.graph import Bools
    from meshwright.diagnose.trace.columns import Calls, Ints, Longs, Trace

ALLOCATION = re.compile(
    r"^(cuda|hip|mu)(Malloc|Free)"
    r"|^(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|Release|SetAccess)"
)
COPY = re.compile(r"^(cuda|hip|mu|cu)Memcpy")
BLOCKED_NS = 20_000  # a copy whose call lasts longer, and past its own end, held the host
WAITING_NS = 5_000  # of its own time at most in a call that waits


def doing_of(trace: Trace) -> Mapping[str, Spans]:
    """When the host did what the trace names: "data_loading" (preparing too), "checkpoint", ..."""
    found = host_of(trace)
    phases = dict(found.phases)
    loading = merged(found.dataloader.spans, phases.pop("preprocess", NOTHING))
    return {LOADING: loading, **phases}


def rows_that_matter(trace: Trace, correlation: Longs, low: int, high: int) -> Longs:
    """Calls of a window that launch one of its events, wait for the device, or allocate."""
    calls = trace.calls
    first, last = np.searchsorted(calls.start_ns, (low, high))
    rows = np.arange(first, last)
    launches = np.isin(calls.correlation[rows], correlation) & (calls.correlation[rows] > 0)
    named = names_like(trace.names, calls.name[rows], SYNC)
    named |= names_like(trace.names, calls.name[rows], ALLOCATION)
    return np.asarray(rows[launches | named], dtype=np.int64)


def host_side(
    trace: Trace,
    rows: Longs,
    doing: Mapping[str, Spans],
    *,
    low: int,
    launches: Bools,
    ends: Longs,
    of_call: Longs,
) -> HostSide:
    """The calls of a window, and what each waits for.

    `ends` are the ends of the window's device events (since `low`), in their order; `of_call` the
    event that each call launched (-1: none, the last of several), `doing` what the host did when.
    """
    calls = trace.calls
    start = calls.start_ns[rows] - low
    end = np.maximum(calls.end_ns[rows] - low, start)
    allocates = names_like(trace.names, calls.name[rows], ALLOCATION)
    before, since = _before(calls.thread[rows], start, end)
    waits = _waiting(trace, calls, rows, end - start, of_call=of_call, ends=ends, call_end=end)
    awaited, after, own = _awaited(start, end, waits | allocates, ends)
    return HostSide(
        row=rows,
        start_ns=start,
        end_ns=end,
        launches=launches,
        allocates=allocates,
        before=before,
        gap_ns=start - since,
        doing_ns={k: within(spans, low + since, low + start) for k, spans in doing.items()},
        own_ns=own,
        awaited=np.where(awaited >= 0, 1 + 2 * len(rows) + awaited, 0),
        after_ns=after,
    )


def _before(thread: Ints, start: Longs, end: Longs) -> tuple[Longs, Longs]:
    """The node that each call starts after, and when that was.

    It is the call before it on its thread; on another thread if that one began after this one had
    ended: the forward pass hands over to the thread of autograd, which hands back.
    """
    count = len(start)
    found, at = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    rows_of = [np.flatnonzero(thread == t) for t in np.unique(thread)]
    for rows in rows_of:
        found[rows[1:]] = rows[:-1]
    own_end = np.where(found >= 0, end[np.maximum(found, 0)], -1)
    inside = own_end > start  # a call within a call: it starts after its start
    for rows in rows_of if len(rows_of) > 1 else ():
        others = np.flatnonzero(thread != thread[rows[0]])
        other = _latest(end[others], start[rows], before=others)
        begun = start[np.maximum(other, 0)]
        better = (other >= 0) & (other < rows) & (begun >= own_end[rows]) & ~inside[rows]
        found[rows[better]] = other[better]
    none = found < 0
    at[~none] = np.where(inside, start[np.maximum(found, 0)], end[np.maximum(found, 0)])[~none]
    node = np.where(none, 0, np.where(inside, 1 + 2 * found, 2 + 2 * found))
    return node, at


def _latest(ends: Longs, at: Longs, *, before: Longs) -> Longs:
    """Which of `before` ended last by each moment, -1: none."""
    order = np.argsort(ends, kind="stable")
    place = np.searchsorted(ends[order], at, "right") - 1
    return np.where(place >= 0, before[order[np.maximum(place, 0)]], -1)


def _waiting(
    trace: Trace,
    calls: Calls,
    rows: Longs,
    length: Longs,
    *,
    of_call: Longs,
    ends: Longs,
    call_end: Longs,
) -> Bools:
    """Calls that return only when the device has done something: synchronizations, some copies."""
    waits = names_like(trace.names, calls.name[rows], SYNC)
    copies = names_like(trace.names, calls.name[rows], COPY) & (length > BLOCKED_NS)
    over = (of_call >= 0) & (ends[np.maximum(of_call, 0)] <= call_end) if len(ends) else copies
    return np.asarray(waits | (copies & over), dtype=np.bool_)


def _awaited(start: Longs, end: Longs, waits: Bools, ends: Longs) -> tuple[Longs, Longs, Longs]:
    """The event whose end each waiting call returned after, how long after, and its own time."""
    count = len(start)
    awaited = np.full(count, -1, dtype=np.int64)
    after, own = np.zeros(count, dtype=np.int64), end - start
    rows = np.flatnonzero(waits)
    if len(rows) == 0 or len(ends) == 0:
        return awaited, after, own
    found = _latest(ends, end[rows] - 1, before=np.arange(len(ends)))
    held = (found >= 0) & (ends[np.maximum(found, 0)] > start[rows])
    rows, found = rows[held], found[held]
    awaited[rows] = found
    after[rows] = end[rows] - ends[found]
    own[rows] = np.minimum(own[rows], WAITING_NS)
    return awaited, after, own
