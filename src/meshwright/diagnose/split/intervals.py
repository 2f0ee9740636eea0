"""Sets of time on sorted integer columns: what ran, what of it overlaps, what is left.

A `Spans` is a set of moments as disjoint half-open intervals in order, whose ends are exact
nanoseconds; nothing in it is empty. All verbs take and give such sets and cost a sort at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Longs


class Spans(NamedTuple):
    """Disjoint intervals [start, end) in order, int64 nanoseconds, one row each."""

    start: Longs
    end: Longs

    def __bool__(self) -> bool:
        """Whether there is any time in it."""
        return len(self.start) > 0


NOTHING = Spans(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def union(start: Longs, end: Longs) -> Spans:
    """The moments that any of these intervals covers; they may overlap and be in any order."""
    kept = end > start
    if not kept.all():
        start, end = start[kept], end[kept]
    if len(start) == 0:
        return NOTHING
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return Spans(start[first], reach[last])


def merged(*sets: Spans) -> Spans:
    """The moments in any of these sets."""
    held = [s for s in sets if s]
    if len(held) < 2:
        return held[0] if held else NOTHING
    return union(np.concatenate([s.start for s in held]), np.concatenate([s.end for s in held]))


def intersect(a: Spans, b: Spans) -> Spans:
    """The moments in both sets."""
    return _where(a, b, weight=1, wanted=2) if a and b else NOTHING


def subtract(a: Spans, b: Spans) -> Spans:
    """The moments of `a` that are not in `b`."""
    return _where(a, b, weight=2, wanted=1) if a and b else a


def _where(a: Spans, b: Spans, *, weight: int, wanted: int) -> Spans:
    """The moments at which (in a) + weight * (in b) is as wanted."""
    at = np.concatenate((a.start, a.end, b.start, b.end))
    by = np.repeat(np.array([1, -1, weight, -weight], dtype=np.int8), [len(s) for s in (*a, *b)])
    order = np.argsort(at, kind="stable")
    at, level = at[order], np.cumsum(by[order], dtype=np.int64)
    inside = np.flatnonzero((level[:-1] == wanted) & (at[1:] > at[:-1]))
    return union(at[inside], at[inside + 1])


def clip(spans: Spans, low: int, high: int) -> Spans:
    """The moments of the set in [low, high)."""
    first, last = np.searchsorted(spans.end, low, "right"), np.searchsorted(spans.start, high)
    if last <= first:
        return NOTHING
    return Spans(np.maximum(spans.start[first:last], low), np.minimum(spans.end[first:last], high))


def total(spans: Spans) -> int:
    """Length of the set in nanoseconds."""
    return int((spans.end - spans.start).sum())


def before(spans: Spans, at: Longs) -> Longs:
    """Nanoseconds of the set before each of these moments."""
    if not spans:
        return np.zeros(len(at), dtype=np.int64)
    sums = np.concatenate(([0], np.cumsum(spans.end - spans.start)))
    begun = np.searchsorted(spans.start, at, "right")
    last = np.maximum(begun - 1, 0)
    over = np.minimum(at, spans.end[last]) - spans.start[last]
    return np.asarray(np.where(begun > 0, sums[last] + over, 0), dtype=np.int64)


def within(spans: Spans, start: Longs, end: Longs) -> Longs:
    """Nanoseconds of the set in each interval [start, end)."""
    return before(spans, end) - before(spans, start)


def pieces(spans: Spans, cuts: Longs) -> Spans:
    """The same moments, with every interval cut in two where one of `cuts` lies inside it.

    `cuts` are in order. What comes back is in order and disjoint, but neighbours may touch.
    """
    if not spans:
        return spans
    cuts = cuts[np.searchsorted(cuts, spans.start[0]) : np.searchsorted(cuts, spans.end[-1])]
    place = np.searchsorted(spans.start, cuts, "right") - 1
    inside = np.unique(cuts[(place >= 0) & (cuts > spans.start[place]) & (cuts < spans.end[place])])
    return Spans(
        np.sort(np.concatenate((spans.start, inside)), kind="stable"),
        np.sort(np.concatenate((spans.end, inside)), kind="stable"),
    )


def inside(spans: Spans, at: Longs) -> NDArray[np.bool_]:
    """Whether each of these moments is in the set."""
    if not spans:
        return np.zeros(len(at), dtype=np.bool_)
    place = np.searchsorted(spans.start, at, "right") - 1
    return np.asarray((place >= 0) & (at < spans.end[place]), dtype=np.bool_)
