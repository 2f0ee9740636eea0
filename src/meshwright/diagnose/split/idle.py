"""Who owns the time in which the device has nothing to do.

What ends an idle piece decides: the call that launched the next device event came late, or was
early and slow to take effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.split.intervals import NOTHING, Spans, pieces, total

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs, Trace

SHORT_NS = 5000  # up to it, a gap behind a queued launch is the device's own turn-around

LATE, LATENCY = "idle_host_late_launch", "idle_launch_latency"
SHORT, DEPENDENCY = "idle_back_to_back_under_5us", "idle_device_dependency"
UNKNOWN, TAIL = "idle_unknown_launch_not_in_trace", "idle_tail_after_last_kernel"
NO_LAUNCH, NO_EVENT = -1, -2


def by_launch(trace: Trace, work: Work, idle: Spans, *, ends: Longs) -> dict[str, Spans]:
    """The idle pieces by owner: by the launch of the first event from `ends` on, one per piece.

    A launch that began after the piece did is late up to its call, and latency from there on.
    Launched earlier, it waited for something on the device (or is its turn-around, up to 5 us).
    """
    call, launch = next_launches(trace, work, ends)
    late = (call >= 0) & (launch >= idle.start)
    called = np.where(late, np.minimum(launch, idle.end), idle.start)
    short = idle.end - idle.start <= SHORT_NS
    queued = (call >= 0) & ~late
    return {
        LATE: _spans(idle.start, called, late),
        LATENCY: _spans(called, idle.end, late),
        SHORT: _spans(idle.start, idle.end, queued & short),
        DEPENDENCY: _spans(idle.start, idle.end, queued & ~short),
        UNKNOWN: _spans(idle.start, idle.end, call == NO_LAUNCH),
        TAIL: _spans(idle.start, idle.end, call == NO_EVENT),
    }


def _spans(start: Longs, end: Longs, chosen: Any) -> Spans:
    held = chosen & (end > start)
    return Spans(start[held], end[held])


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
    us = {o: total(s) / 1000 for o, s in by_launch(trace, work, gaps, ends=gaps.end).items()}
    return {
        "n_gaps": len(gaps.start),
        "host_late_launch_us": us[LATE],
        "launch_latency_us": us[LATENCY],
        "back_to_back_under_5us_us": us[SHORT],
        "device_dependency_us": us[DEPENDENCY],
        "unknown_no_correlation_us": us[UNKNOWN],
        "sum_us": total(gaps) / 1000,
    }
