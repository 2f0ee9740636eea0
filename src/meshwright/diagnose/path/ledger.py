"""The collectives of all ranks as a ledger: when each rank came by its own work, and its stalls.

Every rank has a clock of its own that stands still while the rank stalls: while a collective runs
and nothing computes beside it. On that clock a rank comes to a collective at a fixed moment,
however long it stalled before, and stalls for one at a fixed moment too. Given those, the true
times follow from one rule: a collective is over a transfer after the last of its ranks has come.

Traces do not say when the result of a collective that compute hid was needed. It is taken to have
been needed when it was there: what a replay with faster ranks gains is then rather too little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.across.match import TOLERANCE_NS, grouped, matched, rematched
from meshwright.diagnose.across.table import rows_of
from meshwright.diagnose.across.waits import waits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.across.table import Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Longs

QUEUED_NS = 5_000  # a collective that starts so soon after the one before it was queued behind it
LEAVES_EARLY_NS = 20_000  # a rank that leaves so long before the last has come did not wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Rows on their ranks' own clocks, in nanoseconds since the rank's window began.

    A rank `comes` to a collective, and would stall for it at `stalls`; `stalled` counts the stalls
    that were over when it came. A stall ends `short` before the row does where the window ends
    first. `behind` is the row that this one was queued behind on its stream (-1: none), `gap` how
    long after it that it began. For each rank `held` lists the rows that it stalls for, in order,
    and `edges` the beginnings of its steps and the end of the last.
    """

    comes: Longs
    stalls: Longs
    stalled: Longs
    short: Longs
    behind: Longs
    gap: Longs
    held: tuple[Longs, ...]
    edges: tuple[Longs, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One row for each rank in each collective, in the order in which these became complete.

    `rank` is an index into `ranks`. Rows of collective i are `first[i]:first[i + 1]`; it takes
    `transfer[i]` nanoseconds, and row j leaves `late[j]` after that; of these, `moves[i]` are sure
    to be transfer: without the traces of all members, the least that its like took. `start` and
    `length` are those of each rank's window, on the shared clock and as measured.
    """

    ranks: tuple[int, ...]
    first: Longs
    rank: Longs
    late: Longs
    transfer: Longs
    moves: Longs
    lane: Longs  # of each collective
    groups: tuple[str, ...]  # of each lane
    start: Longs
    length: Longs
    clocks: Clocks

    def __len__(self) -> int:
        return len(self.transfer)


def ledger_of(ranks: Sequence[Rank], across: Across, *, most_rows: int) -> Ledger | None:
    """The ledger of ranks with collectives (in the order of `across.ranks`); None without steps."""
    shift = np.round(np.array(across.clock_shift_us or [0.0] * len(ranks)) * 1000).astype(np.int64)
    rows = rows_of(ranks, across.ranks)
    found = rematched(rows, grouped(rows, matched(rows)), shift, tolerance_ns=TOLERANCE_NS)
    waits = waits_of(rows, found.instance, shift)
    cuts = _cuts(ranks, shift, most=_steps_within(ranks, len(waits.row), most_rows))
    if cuts is None or len(waits) == 0:
        return None
    return _ledger(rows, waits, cuts)


def _steps_within(ranks: Sequence[Rank], rows: int, most: int) -> int:
    """How many steps may be looked at."""
    steps = min(max(len(r.device_steps), 1) for r in ranks)
    return max(1, min(steps, steps * most // max(rows, 1)))


def _cuts(ranks: Sequence[Rank], shift: Longs, *, most: int) -> list[Longs] | None:
    """The beginnings of each rank's steps, and the end of the last, on the shared clock."""
    found = []
    for rank, own in zip(ranks, shift.tolist(), strict=True):
        spans = [(s.start_us, s.dur_us) for s in rank.device_steps[:most]]
        if not spans and rank.gpu_span is not None:
            spans = [(rank.gpu_span.start_us, rank.gpu_span.window_us)]
        if not spans:
            return None
        at = [start for start, _ in spans] + [spans[-1][0] + spans[-1][1]]
        exact = np.array([round(a * 1000) for a in at], dtype=np.int64)
        found.append(np.maximum.accumulate(exact + rank.meta.base_ns - own))
    return found


def _ledger(rows: Rows, waits: Waits, cuts: list[Longs]) -> Ledger:
    rank = rows.rank[waits.row].astype(np.int64)
    start = np.array([c[0] for c in cuts])
    end = np.array([c[-1] for c in cuts])
    begun = waits.begun_ns[waits.of]
    late = waits.end_ns - begun - waits.transfer_ns[waits.of]
    inside = (waits.end_ns > start[rank]) & (waits.start_ns < end[rank])
    inside &= waits.end_ns >= begun - LEAVES_EARLY_NS
    kept = np.flatnonzero(inside)
    of, first = np.unique(waits.of[kept], return_index=True)
    stream = rows.stream[waits.row[kept]]
    own = _Own(
        rank=rank[kept],
        start=waits.start_ns[kept] - start[rank[kept]],
        end=waits.end_ns[kept] - start[rank[kept]],
        exposed=rows.exposed_ns[waits.row[kept]],
        stream=stream.astype(np.int64),
        length=end - start,
    )
    clocks = _own_clocks(own, cuts)
    return Ledger(
        ranks=rows.ranks,
        first=np.append(first, len(kept)),
        rank=own.rank,
        late=late[kept],
        transfer=waits.transfer_ns[of],
        moves=_moves(rows, waits)[of],
        lane=waits.lane[of].astype(np.int64),
        groups=tuple(lane.group for lane in rows.lanes),
        start=start,
        length=end - start,
        clocks=clocks,
    )


def _moves(rows: Rows, waits: Waits) -> Longs:
    """What of each transfer no absent rank can have been waited for in."""
    bare = np.array([lane.pair is None and lane.size < 0 for lane in rows.lanes], dtype=np.bool_)
    met = np.diff(waits.first)
    sure = waits.complete | (bare[waits.lane] & (met == len(rows.ranks)))
    alike = waits.lane.astype(np.int64) * (len(rows.kinds) + 1) + waits.kind
    _, kind = np.unique(alike, return_inverse=True)
    least = np.full(int(kind.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, kind, waits.transfer_ns)
    return np.where(sure, waits.transfer_ns, least[kind])


class _Own(NamedTuple):
    """Rows of all ranks, each since its own window began, before their own clocks are found."""

    rank: Longs
    start: Longs
    end: Longs
    exposed: Longs
    stream: Longs
    length: Longs  # of each rank's window


def _own_clocks(own: _Own, cuts: list[Longs]) -> Clocks:
    comes, stalls, stalled, short, gap = np.zeros((5, len(own.rank)), dtype=np.int64)
    behind = np.full(len(own.rank), -1, dtype=np.int64)
    held, edges = [], []
    for number, length in enumerate(own.length.tolist()):
        rows = np.flatnonzero(own.rank == number)
        stall_rows, begin, finish = _stalls(own, rows, length)
        sums = np.concatenate(([0], np.cumsum(finish - begin)))
        over = np.searchsorted(finish, own.start[rows], "right")
        stalled[rows], comes[rows] = over, own.start[rows] - sums[over]
        stalls[stall_rows] = begin - sums[:-1]
        short[stall_rows] = own.end[stall_rows] - finish
        behind[rows], gap[rows] = _queue(own, rows)
        held.append(stall_rows)
        edges.append(_on_own_clock(cuts[number] - cuts[number][0], begin, finish))
    return Clocks(
        comes=comes,
        stalls=stalls,
        stalled=stalled,
        short=short,
        behind=behind,
        gap=gap,
        held=tuple(held),
        edges=tuple(edges),
    )


def _stalls(own: _Own, rows: Longs, length: int) -> tuple[Longs, Longs, Longs]:
    """Rows that a rank stalls for, and when: the exposed time is taken to be the last of each.

    Of rows that are exposed together the one that is over first has the time until then.
    """
    order = rows[np.argsort(own.end[rows], kind="stable")]
    finish = np.minimum(own.end[order], length)
    reach = np.concatenate(([0], np.maximum.accumulate(finish)[:-1])) if len(order) else finish
    begin = np.maximum(np.maximum(own.end[order] - own.exposed[order], reach), 0)
    real = finish >= begin
    return order[real], begin[real], finish[real]


def _queue(own: _Own, rows: Longs) -> tuple[Longs, Longs]:
    """The row that each was queued behind on its stream, and how long after that it began."""
    order = rows[np.lexsort((own.start[rows], own.stream[rows]))]
    behind, gap = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    between = own.start[order[1:]] - own.end[order[:-1]]
    near = (own.stream[order[1:]] == own.stream[order[:-1]]) & (between >= 0)
    near &= between <= QUEUED_NS
    place = np.searchsorted(rows, order[1:][near])  # rows are in order
    behind[place], gap[place] = order[:-1][near], between[near]
    return behind, gap


def _on_own_clock(at: Longs, begin: Longs, finish: Longs) -> Longs:
    """Moments since the window began on a clock that stands still in stalls."""
    if len(begin) == 0:
        return at
    sums = np.concatenate(([0], np.cumsum(finish - begin)))
    begun = np.searchsorted(begin, at, "right")
    last = np.maximum(begun - 1, 0)
    inside = np.where(begun > 0, np.minimum(at, finish[last]) - begin[last], 0)
    return np.asarray(at - np.where(begun > 0, sums[last] + inside, 0), dtype=np.int64)
