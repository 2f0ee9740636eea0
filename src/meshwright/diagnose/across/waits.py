"""Waits apart from transfers: in a collective everybody waits for the last who comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from meshwright.diagnose.across.table import Bools, Rows
    from meshwright.diagnose.trace.columns import Ints, Longs


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Instances in the order in which they became complete, and the waits of their rows.

    Columns "of each row" go by `row`, which has the rows of instance i at `first[i]:first[i + 1]`,
    by rank. The others have one entry for each instance. Times are on the shifted clocks.
    """

    row: Longs
    first: Longs
    of: Longs  # instance of each row
    start_ns: Longs  # of each row
    end_ns: Longs  # of each row
    wait_ns: Longs  # of each row
    begun_ns: Longs  # when the last rank had come
    start_skew_ns: Longs
    end_skew_ns: Longs
    last: Longs  # place in `row` of the last to come
    transfer_ns: Longs  # of the last to come, or of whoever was fastest
    longest_ns: Longs
    lane: Ints
    kind: Ints
    complete: Bools  # whether all members of the group are in the traces

    def __len__(self) -> int:
        return len(self.begun_ns)


def waits_of(rows: Rows, instance: Longs, shift_ns: Longs) -> Waits:
    """The waits of matched rows."""
    at = np.flatnonzero(instance >= 0)
    start = rows.start_ns[at] - shift_ns[rows.rank[at]]
    end = rows.end_ns[at] - shift_ns[rows.rank[at]]
    count = int(instance.max(initial=-1)) + 1
    begun = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(begun, instance[at], start)
    place = np.empty(count, np.int64)
    place[np.argsort(begun, kind="stable")] = np.arange(count)
    of = place[instance[at]]
    order = np.lexsort((rows.rank[at], of))
    at, start, end, of = at[order], start[order], end[order], of[order]
    first = np.searchsorted(of, np.arange(count + 1))
    return _built(rows, at, start, end, first, of)


def _built(rows: Rows, row: Longs, start: Longs, end: Longs, first: Longs, of: Longs) -> Waits:
    low = first[:-1]
    begun = np.maximum.reduceat(start, low) if len(low) else np.zeros(0, np.int64)
    length = end - start
    by_start = np.lexsort((-np.arange(len(of)), start, of))  # of equal ones the lowest rank is last
    last = by_start[first[1:] - 1] if len(low) else low

    def least(column: Longs) -> Longs:
        return np.minimum.reduceat(column, low) if len(low) else column

    def most(column: Longs) -> Longs:
        return np.maximum.reduceat(column, low) if len(low) else column

    lane = rows.lane[row[low]] if len(low) else rows.lane[:0]
    sizes = np.array([_size(rows, i) for i in range(len(rows.lanes))], np.int64)
    return Waits(
        row=row,
        first=first,
        of=of,
        start_ns=start,
        end_ns=end,
        wait_ns=np.clip(begun[of] - start, 0, length),
        begun_ns=begun,
        start_skew_ns=begun - least(start),
        end_skew_ns=most(end) - least(end),
        last=last,
        transfer_ns=least(length),
        longest_ns=most(length),
        lane=lane,
        kind=rows.kind[row[last]] if len(low) else rows.kind[:0],
        complete=np.diff(first) == sizes[lane],
    )


def _size(rows: Rows, number: int) -> int:
    """Members of a lane; the ranks that meet in a lane without names are all there are."""
    lane = rows.lanes[number]
    if lane.pair is not None:
        return 2
    if len(lane.members) or lane.size > 0:
        return max(len(lane.members), lane.size)
    return -1
