"""Who owns the time in which the device has nothing to do.

What ends an idle piece decides: the call that launched the next device event came late, or was
early and slow to take effect. Time in which the host was loading data or asked the allocator goes
to these first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.split.intervals import NOTHING, Spans, intersect, pieces, subtract, total

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs, Trace

SHORT_NS = 5000  # up to it, a gap behind a queued launch is the device's own turn-around

LATE, LATENCY = "idle_host_late_launch", "idle_launch_latency"
SHORT, DEPENDENCY = "idle_back_to_back_under_5us", "idle_device_dependency"
UNKNOWN, TAIL = "idle_unknown_launch_not_in_trace", "idle_tail_after_last_kernel"
BY_LAUNCH = (LATE, LATENCY, SHORT, DEPENDENCY, UNKNOWN, TAIL)


def by_launch(trace: Trace, work: Work, idle: Spans, *, ends: Longs) -> tuple[Longs, Longs]:
    """The owner of each idle piece by the launch of the event that ends it.

    That is the first event that starts at or after `ends` (one moment a piece). Returns two columns
    over the pieces: nanoseconds of late launch (nothing else shares a piece), and the owner of the
    rest, a number into `BY_LAUNCH`.
    """
    call, launch = next_launches(trace, work, ends)
    late = (call >= 0) & (launch >= idle.start)
    late_ns = np.where(late, np.minimum(launch, idle.end) - idle.start, 0)
    short = idle.end - idle.start <= SHORT_NS
    rest = np.where(short, BY_LAUNCH.index(SHORT), BY_LAUNCH.index(DEPENDENCY))
    rest[late] = BY_LAUNCH.index(LATENCY)
    rest[call == NO_LAUNCH] = BY_LAUNCH.index(UNKNOWN)
    rest[call == NO_EVENT] = BY_LAUNCH.index(TAIL)
    return late_ns, rest


NO_LAUNCH, NO_EVENT = -1, -2


def next_launches(trace: Trace, work: Work, at: Longs) -> tuple[Longs, Longs]:
    """Row and start of the call that launched the first event from each moment on.

    The row is NO_LAUNCH where the trace has no such call, NO_EVENT where no event comes.
    """
    device = trace.device
    if len(device) == 0:
        return np.full(len(at), NO_EVENT, dtype=np.int64), np.zeros(len(at), dtype=np.int64)
    event = np.searchsorted(device.start_ns, at)
    follows = event < len(device)
    event[~follows] = 0
    return np.where(follows, work.call[event], NO_EVENT), work.launch_ns[event]


def sums_by_launch(trace: Trace, work: Work, idle: Spans, *, ends: Longs) -> dict[str, int]:
    """Nanoseconds of the idle pieces by owner (see `by_launch`); owners of nothing are left out."""
    late_ns, rest = by_launch(trace, work, idle, ends=ends)
    left = np.bincount(rest, idle.end - idle.start - late_ns, minlength=len(BY_LAUNCH))
    sums = dict(zip(BY_LAUNCH, map(int, left), strict=True)) | {LATE: int(late_ns.sum())}
    return {owner: ns for owner, ns in sums.items() if ns}


def owned(idle: Spans, owners: Sequence[tuple[str, Spans]]) -> tuple[dict[str, int], Spans]:
    """Nanoseconds of idle time that each owner takes in turn, and what is left of it."""
    taken = {}
    for name, spans in owners:
        taken[name] = total(intersect(idle, spans))
        idle = subtract(idle, spans)
    return taken, idle


def gaps_of(work: Work) -> Spans:
    """The time between the first and the last device event in which nothing ran.

    Gaps touch where an event of no length lies between them.
    """
    if not work.busy:
        return NOTHING
    return pieces(Spans(work.busy.end[:-1], work.busy.start[1:]), work.begins)


def idle_cause(trace: Trace, work: Work) -> Mapping[str, Any]:
    """`Rank.idle_cause`: gaps between device events by the launch that ends them."""
    gaps = gaps_of(work)
    sums = sums_by_launch(trace, work, gaps, ends=gaps.end)
    us = {owner: sums.get(owner, 0) / 1000 for owner in BY_LAUNCH}
    return {
        "n_gaps": len(gaps.start),
        "host_late_launch_us": us[LATE],
        "launch_latency_us": us[LATENCY],
        "back_to_back_under_5us_us": us[SHORT],
        "device_dependency_us": us[DEPENDENCY],
        "unknown_no_correlation_us": us[UNKNOWN],
        "sum_us": total(gaps) / 1000,
    }
