"""Who is waited for, followed to the root.

The last to come to a collective is not its cause when it waited itself meanwhile: for somebody in
a collective of another group. What it waited more than the others of this group since they last
met is upstream; where that is most of its delay the blame goes to whom it waited for, and on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from meshwright.diagnose.across.table import Doubles, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.trace.columns import Ints, Longs

LOOK_BACK = 64  # collectives of a rank in which the wait that delayed it is looked for
MOSTLY = 0.5  # share of a delay that must have been waiting, for the blame to go upstream
NOBODY, UNKNOWN = -1, -2  # instead of a rank
AS_LATE = 0.1  # of the mean wait: who waits less came as late as the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Rows that came last to an instance, or as good as last, and where their chains end.

    `rank` and `root` are places in `Rows.ranks`, a root NOBODY where a pipeline only fills and
    drains; `weight` is the row's share of the instance's
    blame. `late_ns` is by how much the row came late, in the mean over those who waited.
    """

    instance: Longs
    rank: Ints
    root: Ints
    weight: Doubles
    late_ns: Doubles


def blame_of(rows: Rows, waits: Waits, blocked_ns: Doubles, pace: Longs) -> Blame:
    """The roots of all instances' waits; `blocked_ns` of each row is what no computation hid.

    `pace` has for each instance that hands something on between stages the rank that sets the pace
    of the pipeline (NOBODY where stages are even), UNKNOWN where chains are followed.
    """
    low = waits.first[:-1]
    rank = rows.rank[waits.row]
    waited = np.add.reduceat(waits.wait_ns.astype(float), low)
    late = waited / np.maximum(np.diff(waits.first) - 1, 1)
    lines = _Lines.of(rank, waits, blocked_ns)
    since = lines.since_last_met(waits)
    elsewhere = lines.waited_between(since, waits.start_ns)
    usual = np.add.reduceat(elsewhere * waits.wait_ns, low) / np.maximum(waited, 1.0)
    chosen = np.flatnonzero(waits.wait_ns <= AS_LATE * late[waits.of])
    of = waits.of[chosen]
    pushed = (elsewhere[chosen] - usual[of] >= MOSTLY * late[of]) & (late[of] > 0)
    guilty = np.where(pushed, lines.longest_wait(waits, since, chosen), -1)
    guilty = np.where(guilty >= 0, guilty, _still_late(rows, waits, blocked_ns, late)[chosen])
    return _rooted(waits, chosen, rank, guilty, late, pace)


def _rooted(
    waits: Waits, chosen: Longs, rank: Ints, guilty: Longs, late: Doubles, pace: Longs
) -> Blame:
    """The ends of the chains: of an instance, the chain of its very last row."""
    count = len(waits)
    of, parent, last = waits.of[chosen], np.full(count, -1, np.int64), rank[waits.last]
    very_last = chosen == waits.last[of]
    parent[of[very_last]] = guilty[very_last]
    parent[pace != UNKNOWN] = -1
    at = _roots(parent)
    root_of = np.where(pace[at] != UNKNOWN, pace[at], last[at])
    root = np.where(guilty >= 0, root_of[np.maximum(guilty, 0)], rank[chosen])
    root = np.where(pace[of] != UNKNOWN, pace[of], root)
    return Blame(
        instance=of,
        rank=rank[chosen],
        root=root.astype(np.int32),
        weight=1.0 / np.bincount(of, minlength=count)[of],
        late_ns=late[of],
    )


def _roots(parent: Longs) -> Longs:
    """Where the chains end; an instance's parent was complete before it, so they do."""
    at = np.where(parent >= 0, parent, np.arange(len(parent)))
    for _ in range(64):
        further = at[at]
        if np.array_equal(further, at):
            break
        at = further
    return at


def _still_late(rows: Rows, waits: Waits, blocked_ns: Doubles, late: Doubles) -> Longs:
    """The collective of the group before, where a row was last in it and has been late ever since.

    Collectives behind computation bring streams together, not the ranks: nobody stood still for the
    one before, or those who wait went from it into this one and have waited all along. -1 for other
    rows.
    """
    lane, rank, step = waits.lane[waits.of], rows.rank[waits.row], rows.step[waits.row]
    order = np.lexsort((waits.start_ns, rank, lane))
    now, before = order[1:], order[:-1]
    same = (lane[now] == lane[before]) & (rank[now] == rank[before]) & (step[now] == step[before])
    now, before = now[same], before[same]
    i, j = waits.of[now], waits.of[before]
    was_last = waits.last[j] == before
    hidden = np.add.reduceat(blocked_ns, waits.first[:-1]) < MOSTLY * np.add.reduceat(
        waits.wait_ns, waits.first[:-1]
    )
    stayed = hidden[j] & (late[j] >= MOSTLY * late[i])
    paused = np.zeros(len(waits))
    weight = waits.wait_ns[now].astype(float)
    np.add.at(paused, i, weight * (waits.start_ns[now] - waits.end_ns[before]))
    total = np.bincount(i, weights=weight, minlength=len(waits))
    at_once = paused <= AS_LATE * late * total
    found = np.full(len(order), -1, np.int64)
    kept = was_last & (stayed | at_once[i])
    found[now[kept]] = j[kept]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """The waits of each rank, in the order in which they ended.

    `order` sorts rows by rank and end, `ends` (a `span` further for each rank) and `sums` (waits so
    far) go along it.
    """

    order: Longs
    rank: Ints
    blocked: Doubles
    ends: Longs
    sums: Doubles
    span: int
    base: int

    @classmethod
    def of(cls, rank: Ints, waits: Waits, blocked: Doubles) -> _Lines:
        order = np.lexsort((waits.end_ns, rank))
        base = int(waits.start_ns.min())
        span = int(waits.end_ns.max()) - base + 2
        ends = (waits.end_ns - base)[order] + rank[order].astype(np.int64) * span
        sums = np.concatenate([[0.0], np.cumsum(blocked[order])])
        return cls(
            order=order, rank=rank, blocked=blocked, ends=ends, sums=sums, span=span, base=base
        )

    def before(self, time_ns: Longs) -> Longs:
        """For each row how many waits of its rank, and of ranks before it, ended by a time."""
        keys = (
            np.clip(time_ns - self.base, 0, self.span - 1) + self.rank.astype(np.int64) * self.span
        )
        return np.searchsorted(self.ends, keys, side="right")

    def waited_between(self, since_ns: Longs, until_ns: Longs) -> Doubles:
        """Of each row how long its rank waited in collectives that ended in between."""
        found: Doubles = self.sums[self.before(until_ns)] - self.sums[self.before(since_ns)]
        return found

    def since_last_met(self, waits: Waits) -> Longs:
        """Of each row the end of its rank's collective before with the same group."""
        lane = waits.lane[waits.of]
        order = np.lexsort((waits.start_ns, self.rank, lane))
        same = np.concatenate(
            [[False], (np.diff(lane[order]) == 0) & (np.diff(self.rank[order]) == 0)]
        )
        before = np.concatenate([[0], waits.end_ns[order][:-1]])
        since = np.empty(len(order), np.int64)
        since[order] = np.where(same, before, self.base)
        return since

    def longest_wait(self, waits: Waits, since_ns: Longs, row: Longs) -> Longs:
        """For each of `row` the instance in which its rank waited longest since the group met."""
        start = self.before(waits.start_ns)[row]
        stop = np.maximum(self.before(since_ns)[row], start - LOOK_BACK)
        best = np.full(len(row), -1, np.int64)
        longest = np.zeros(len(row))
        for back in range(1, LOOK_BACK + 1):
            at = start - back
            inside = at >= stop
            if not inside.any():
                break
            candidate = self.order[np.maximum(at, 0)]
            wait = np.where(inside, self.blocked[candidate], 0.0)
            better = wait > longest
            longest = np.where(better, wait, longest)
            best = np.where(better, waits.of[candidate], best)
        return best
