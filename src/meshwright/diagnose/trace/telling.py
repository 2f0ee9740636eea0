"""What was left out of a trace's tables, and what was counted and not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.trace.columns import Left
from meshwright.diagnose.trace.kinds import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.diagnose.trace.chunks import Chunks
    from meshwright.diagnose.trace.tables import Tables

FAR_NS = 30 * 86_400 * 10**9  # from the middle of a trace: no event of it is as far


def bounds_of(tables: Tables) -> dict[str, int]:
    """The origin of a trace's times and the bounds within which its events start, absolute ns.

    The origin is the first event's start, down to a whole microsecond. Where events lie more than
    a month apart, those a month away from the middle one are outside.
    """
    reaches = [reach for table in _tables(tables) if (reach := table.reach())]
    if not reaches:
        return {"origin_ns": 0, "earliest_ns": 0, "latest_ns": 0}
    earliest = min(first for first, _ in reaches)
    latest = max(last for _, last in reaches)
    first = min(tables.first_ns, earliest)
    if latest - first > FAR_NS:
        starts = np.concatenate([table.starts() for table in _tables(tables)])
        middle = int(np.partition(starts, len(starts) // 2)[len(starts) // 2])
        earliest, latest = middle - FAR_NS, middle + FAR_NS
        first = int(starts[(starts >= earliest) & (starts <= latest)].min())
    return {"origin_ns": first // 1000 * 1000, "earliest_ns": earliest, "latest_ns": latest}


def _tables(tables: Tables) -> tuple[Chunks, ...]:
    return tables.device, tables.calls, tables.operators, tables.spans, tables.allocations


def lefts_of(tables: Tables) -> list[Left]:
    """What was left out of the tables, once these were sorted."""
    result = [_bad(what, count, tables) for what, count in tables.bad.items()]
    if outside := sum(table.outside for table in _tables(tables)):
        reason = "more than a month from the middle of the trace"
        result.append(Left(what="events far away", count=outside, time_us=0.0, reason=reason))
    for word, (count, time_us) in _others(tables, known=False):
        what = f"events of category {word[:100]!r}" if word else "events without a category"
        result.append(Left(what=what, count=count, time_us=time_us, reason="of unknown kind"))
    numbers = (("names", tables.names), ("messages", tables.messages), ("shapes", tables.shapes))
    for what, kept in numbers:
        if kept.refused:
            reason = f"{len(kept):,} different ones are kept"
            result.append(Left(what=what, count=kept.refused, time_us=0.0, reason=reason))
    return result


def _bad(what: str, count: int, tables: Tables) -> Left:
    time_us = tables.negative_us if "negative" in what else 0.0
    return Left(what=f"events {what}", count=count, time_us=time_us, reason="no time can be so")


def _others(tables: Tables, *, known: bool) -> Iterator[tuple[str, tuple[int, float]]]:
    """Categories that no table takes, with their events and time."""
    for word, code in tables.codes.items():
        if code in tables.others and (word in PARTS) == known:
            yield word, tables.others[code]


def facts_of(tables: Tables) -> Mapping[str, float]:
    """What was counted and not kept, and is no loss of device time."""
    counted = {
        "python_frames_short": float(tables.short_frames),
        "python_frames_short_us": tables.short_frames_us,
        "device_waits": float(tables.device_waits),
        "device_waits_us": tables.device_waits_us,
    }
    apart = {f"events_{word}": float(count) for word, (count, _) in _others(tables, known=True)}
    return {name: value for name, value in counted.items() if value} | apart
