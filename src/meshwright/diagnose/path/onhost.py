"""The events of a window where the host itself computes: each starts after others, no call between.

A thread goes on after its last event, or after the last of another thread that handed over to it,
or when a transfer that it waited for is over. What lies between is the host's own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.path.device import ends_of, kinds_of, queued_behind
from meshwright.diagnose.path.graph import DeviceSide
from meshwright.diagnose.split.intervals import within
from meshwright.diagnose.split.work import COMMUNICATION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.split.intervals import Spans
    from meshwright.diagnose.trace.columns import Longs, Trace


def host_events(
    trace: Trace, rows: Longs, doing: Mapping[str, Spans], *, low: int, high: int
) -> DeviceSide:
    """The events `rows` of a window [low, high) with what they started after."""
    device = trace.device
    start = np.maximum(device.start_ns[rows] - low, 0)
    end = np.minimum(np.maximum(device.end_ns[rows] - low, start), high - low)
    kind = kinds_of(trace, rows)
    transfers = kind == COMMUNICATION
    queued = queued_behind(trace, rows, start, end)
    waits = _over_before(start, end, np.flatnonzero(~transfers))
    joins = np.where(transfers, -1, _over_before(start, end, np.flatnonzero(transfers)))
    at = np.maximum(ends_of(end, queued), ends_of(end, waits))
    joins = np.where(ends_of(end, joins) > at, joins, -1)
    at = np.maximum(at, ends_of(end, joins))
    none = np.zeros_like(start)
    return DeviceSide(
        row=rows,
        start_ns=start,
        end_ns=end,
        kind=kind,
        launch=none,
        latency_ns=none,
        queued=queued + 1,
        waits=waits + 1,
        joins=joins + 1,
        delay_ns=start - at,
        doing_ns={k: within(spans, low + at, low + start) for k, spans in doing.items()},
    )


def _over_before(start: Longs, end: Longs, among: Longs) -> Longs:
    """Of `among` the event that ended last by the start of each, -1 none; always an earlier row."""
    none = np.full(len(start), -1, dtype=np.int64)
    if len(among) == 0:
        return none
    order = among[np.argsort(end[among], kind="stable")]
    place = np.searchsorted(end[order], start, "right") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (found < np.arange(len(start))), found, none)
