"""The device's side of a window: what each event starts after."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.path.graph import DeviceSide
from meshwright.diagnose.split.classes import COMMUNICATION as COMMUNICATES
from meshwright.diagnose.split.classes import TRITON
from meshwright.diagnose.split.work import COMMUNICATION, COMPUTE, MEMORY, joined, names_like
from meshwright.diagnose.trace.columns import Device

if TYPE_CHECKING:
    from meshwright.diagnose.trace.columns import Bytes, Longs, Trace

WAIT = re.compile(r"StreamWaitEvent")
MOST_OVERLAPPING = 8  # events of a stream that run at once
LATENCY_NS = 5_000  # of a launch, where the window shows none on an idle stream
# An event that starts so soon after one elsewhere ended waited for it: at least, at most, and as a
# part of the time that is to be explained. On ROCm a stream goes on some 20 us after the event.
CLOSE_NS, CLOSE_MOST_NS, CLOSE_PART = 10_000, 100_000, 20


def is_communication(name: str) -> bool:
    """Whether a kernel of this name moves or awaits other ranks' data, as `class_of` has it."""
    return COMMUNICATES.search(name) is not None and not TRITON.search(name)


def kinds_of(trace: Trace, rows: Longs) -> Bytes:
    """COMPUTE, COMMUNICATION or MEMORY of events."""
    device = trace.device
    names = device.name[rows]
    by_name = np.zeros(max(len(trace.names), 1), dtype=np.int8)
    for name in np.unique(names):
        by_name[name] = is_communication(trace.names[name])
    kind = np.where(by_name[names] > 0, COMMUNICATION, COMPUTE).astype(np.int8)
    kind[device.message[rows] >= 0] = COMMUNICATION
    kind[device.kind[rows] != Device.KERNEL] = MEMORY
    return np.asarray(kind, dtype=np.int8)


def device_side(
    trace: Trace, rows: Longs, calls: Longs, *, low: int, high: int, call: Longs
) -> DeviceSide:
    """The events `rows` of a window [low, high), launched by `call` (rows of `calls`, -1: none)."""
    device = trace.device
    start = np.maximum(device.start_ns[rows] - low, 0)
    end = np.minimum(np.maximum(device.end_ns[rows] - low, start), high - low)
    kind = kinds_of(trace, rows)
    launched = np.append(trace.calls.start_ns[calls] - low, 0)[call]  # -1 takes the last
    call = np.where((call >= 0) & (launched <= start), call, -1)
    called = np.where(call >= 0, launched, 0)
    queued = queued_behind(trace, rows, start, end)
    since = np.where(queued >= 0, end[np.maximum(queued, 0)], 0)
    latency = _latency(start, called, since, call)
    waits = _stream_waits(trace, rows, calls, kind, start, end, call)
    waits = np.where(waits < np.arange(len(rows)), waits, -1)
    at = np.maximum.reduce((since, called + latency, ends_of(end, waits)))
    joins = _close(start, end, at)
    at = np.maximum(at, ends_of(end, joins))
    first = 1 + 2 * len(calls)
    return DeviceSide(
        row=rows,
        start_ns=start,
        end_ns=end,
        kind=kind,
        launch=np.where(call >= 0, 1 + 2 * call, 0),
        latency_ns=latency,
        queued=np.where(queued >= 0, first + queued, 0),
        waits=np.where(waits >= 0, first + waits, 0),
        joins=np.where(joins >= 0, first + joins, 0),
        delay_ns=start - at,
        doing_ns={},
    )


def ends_of(end: Longs, of: Longs) -> Longs:
    """The ends of events `of`, 0 where there is none (-1)."""
    return np.where(of >= 0, end[np.maximum(of, 0)], 0) if len(end) else end


def queued_behind(trace: Trace, rows: Longs, start: Longs, end: Longs) -> Longs:
    """The last event before each on its stream that was over when it began; -1 none.

    An event may begin before the one ahead of it is over (programmatic dependent launch, clocks
    that round): it is then queued behind an earlier one, a few places back at most.
    """
    device = trace.device
    order = np.lexsort((np.arange(len(rows)), device.stream[rows], device.device[rows]))
    stream, place = device.stream[rows][order], device.device[rows][order]
    found = np.full(len(rows), -1, dtype=np.int64)
    for back in range(1, MOST_OVERLAPPING + 1):
        later, earlier = order[back:], order[:-back]
        same = (stream[back:] == stream[:-back]) & (place[back:] == place[:-back])
        over = same & (found[later] < 0) & (end[earlier] <= start[later])
        found[later[over]] = earlier[over]
    return found


def _latency(start: Longs, called: Longs, since: Longs, call: Longs) -> Longs:
    """What a launch takes to reach the device: as seen where the stream was idle, at most."""
    seen = (start - called)[(call >= 0) & (since <= called)]
    usual = int(np.median(seen)) if len(seen) > 3 else LATENCY_NS
    return np.where(call >= 0, np.minimum(start - called, usual), 0)


def _stream_waits(
    trace: Trace,
    rows: Longs,
    calls: Longs,
    kind: Bytes,
    start: Longs,
    end: Longs,
    call: Longs,
) -> Longs:
    """Waits that the framework's calls imply, as far as the times allow them.

    A collective waits for what was launched on the stream of compute before it (c10d does so for
    each); compute that is launched after cudaStreamWaitEvent waits for a collective launched before
    that call. -1: none.
    """
    found = np.full(len(rows), -1, dtype=np.int64)
    launched = np.flatnonzero(call >= 0)
    if len(launched) == 0:
        return found
    stream = trace.device.stream[rows]
    compute = launched[kind[launched] == COMPUTE]
    if len(compute) == 0:
        return found
    main = np.bincount(np.maximum(stream[compute], 0)).argmax()
    ours = compute[stream[compute] == main]
    theirs = launched[(kind[launched] == COMMUNICATION) & (stream[launched] != main)]
    found[theirs] = _launched_before(call, ours, call[theirs], start[theirs], end)
    waiting = _after_wait(trace, calls, call, ours)
    found[waiting] = _launched_before(call, theirs, call[waiting], start[waiting], end)
    return found


def _launched_before(call: Longs, among: Longs, at: Longs, start: Longs, end: Longs) -> Longs:
    """Of `among`, the last that was launched before each call `at` and over by `start`; or -1.

    Where the last launched was not over, it was another that was waited for: none is named.
    """
    if len(among) == 0:
        return np.full(len(at), -1, dtype=np.int64)
    ordered = among[np.argsort(call[among], kind="stable")]
    place = np.searchsorted(call[ordered], at) - 1
    found = ordered[np.maximum(place, 0)]
    over = (place >= 0) & (end[found] <= start)
    before = ordered[np.maximum(place - 1, 0)]
    second = ~over & (place >= 1) & (end[before] <= start)
    return np.where(over, found, np.where(second, before, -1))


def _after_wait(trace: Trace, calls: Longs, call: Longs, ours: Longs) -> Longs:
    """Those of our events that are the first launched after a cudaStreamWaitEvent on its thread."""
    table = trace.calls
    low, high = int(calls[0]), int(calls[-1]) + 1
    waits = low + np.flatnonzero(names_like(trace.names, table.name[low:high], WAIT))
    if len(waits) == 0:
        return waits
    chosen = []
    ordered = ours[np.argsort(call[ours], kind="stable")]
    all_launches = np.sort(calls)
    for thread in np.unique(table.thread[waits]):
        own = all_launches[table.thread[all_launches] == thread]
        place = np.searchsorted(own, waits[table.thread[waits] == thread], "right")
        following = np.unique(own[place[place < len(own)]])
        chosen.append(ordered[np.isin(calls[call[ordered]], following)])
    return np.concatenate(chosen) if chosen else waits[:0]


def _close(start: Longs, end: Longs, at: Longs) -> Longs:
    """The event on another stream that ended just before each one that nothing else explains."""
    late = np.flatnonzero(start - at > 0)
    found = np.full(len(start), -1, dtype=np.int64)
    if len(late) == 0:
        return found
    order = np.argsort(end, kind="stable")
    place = np.searchsorted(end[order], start[late], "right") - 1
    near = order[np.maximum(place, 0)]
    allowed = np.clip((start - at)[late] // CLOSE_PART, CLOSE_NS, CLOSE_MOST_NS)
    good = (place >= 0) & (near < late) & (start[late] - end[near] <= allowed)
    good &= end[near] > at[late]
    found[late[good]] = near[good]
    return found


def launched_by(trace: Trace, rows: Longs, calls: Longs) -> Longs:
    """For each event the index into `calls` of the one that launched it; -1: none of them."""
    backwards = np.arange(len(calls))[::-1]  # of equal numbers the first is written last
    backwards = backwards[trace.calls.correlation[calls[backwards]] > 0]
    return joined(
        trace.calls.correlation[calls[backwards]], backwards, trace.device.correlation[rows]
    )
