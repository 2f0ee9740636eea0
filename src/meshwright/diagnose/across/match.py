"""Which kernels on which ranks are one collective.

By number in the process group where the trace has it, else by order: members of a group call its
collectives in one order. Where a rank misses calls (a head that was cut off, lost events) the order
is aligned by what the calls are and, once clocks are, by when they end: all members leave a
collective together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.across.shift import shift_of

if TYPE_CHECKING:
    from meshwright.diagnose.across.table import Bools, Doubles, Rows
    from meshwright.diagnose.trace.columns import Ints, Longs

TOLERANCE_NS = 20_000  # by which members leave one collective apart
BROKEN = 0.1  # share of instances that cannot be, from which a lane is matched anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """`instance` of each row, -1 for rows that stand alone; `sure` lanes were matched by order."""

    instance: Longs
    sure: Ints  # of each lane: 2 by number, 1 by equal order, 0 by alignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows of one rank in one lane, in their order."""

    lane: int
    rank: int
    rows: Longs


def blocks_of(rows: Rows) -> dict[int, list[Block]]:
    """The blocks of every lane that can be met by two ranks and is met by two here."""
    order = np.lexsort((np.arange(len(rows)), rows.rank, rows.lane))
    lane, rank = rows.lane[order], rows.rank[order]
    new = np.flatnonzero((np.diff(lane) != 0) | (np.diff(rank) != 0)) + 1
    found: dict[int, list[Block]] = {}
    for part in np.split(order, new):
        if len(part) and rows.lanes[int(rows.lane[part[0]])].size != 1:
            block = Block(lane=int(rows.lane[part[0]]), rank=int(rows.rank[part[0]]), rows=part)
            found.setdefault(block.lane, []).append(block)
    return {lane: blocks for lane, blocks in found.items() if len(blocks) > 1}


def matched(rows: Rows) -> Matched:
    """The first matching, which looks at no clock but to choose between equal alignments."""
    instance = np.full(len(rows), -1, np.int64)
    sure = np.zeros(len(rows.lanes), np.int32)
    base = 0
    clock = np.zeros(len(rows.ranks))  # as far as alignments tell
    for lane, blocks in blocks_of(rows).items():
        if rows.lanes[lane].loose:
            continue
        if rows.lanes[lane].pair is None and all((rows.seq[b.rows] >= 0).all() for b in blocks):
            own, sure[lane] = _by_number(rows, blocks), 2
        elif _alike(rows, blocks):
            own, sure[lane] = [np.arange(len(b.rows)) for b in blocks], 1
        else:
            own, sure[lane] = _aligned(rows, blocks, clock), 0
        for block, ids in zip(blocks, own, strict=True):
            instance[block.rows] = np.where(ids >= 0, ids + base, -1)
        base += max((int(ids.max(initial=-1)) for ids in own), default=-1) + 1
    return Matched(instance=met(rows, instance), sure=sure)


def met(rows: Rows, instance: Longs) -> Longs:
    """The instances that at least two ranks take part in, numbered anew; -1 for the others."""
    result = np.full(len(rows), -1, np.int64)
    at = np.flatnonzero(instance >= 0)
    if not len(at):
        return result
    _, inverse, counts = np.unique(instance[at], return_inverse=True, return_counts=True)
    kept = counts > 1
    numbers = np.where(kept, np.cumsum(kept) - 1, -1)
    result[at] = numbers[inverse]
    return result


def _by_number(rows: Rows, blocks: list[Block]) -> list[Longs]:
    """The number in the group, and of several kernels with one number the how-manieth it is."""
    keys = []
    for block in blocks:
        seq = rows.seq[block.rows]
        order = np.argsort(seq, kind="stable")
        ordered = seq[order]
        first = np.concatenate([[True], np.diff(ordered) != 0])
        start = np.maximum.accumulate(np.where(first, np.arange(len(seq)), 0))
        again = np.empty(len(seq), np.int64)
        again[order] = np.arange(len(seq)) - start
        keys.append(seq + again * (1 << 40))
    _, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    return np.split(inverse, np.cumsum([len(k) for k in keys])[:-1])


def _alike(rows: Rows, blocks: list[Block]) -> bool:
    """Whether every rank calls the same in the same order."""
    first = rows.token[blocks[0].rows]
    return all(np.array_equal(first, rows.token[b.rows]) for b in blocks[1:])


def _aligned(rows: Rows, blocks: list[Block], clock: Doubles) -> list[Longs]:
    """Places along the longest sequence, by the shift that lets most calls agree.

    Ranks whose `clock` one lane has told are found again by time in the next.
    """
    longest = max(blocks, key=lambda b: len(b.rows))
    tokens, ends = rows.token[longest.rows], rows.end_ns[longest.rows]
    found = []
    for block in blocks:
        if block is longest:
            found.append(np.arange(len(block.rows)))
            continue
        own, own_ends = rows.token[block.rows], rows.end_ns[block.rows]
        guess = clock[longest.rank] - clock[block.rank]
        shift, apart = shift_of(tokens, ends, own, own_ends, guess_ns=float(guess))
        clock[block.rank] = clock[longest.rank] - apart
        place = np.arange(len(own)) + shift
        inside = (place >= 0) & (place < len(tokens))
        same = inside & (tokens[np.clip(place, 0, len(tokens) - 1)] == own)
        found.append(np.where(same, place, -1))
    return found


def grouped(rows: Rows, before: Matched) -> Matched:
    """Lanes whose members nobody tells, matched by their ends as the clocks stand.

    The order alone would join groups that know nothing of each other. Where ends do not meet, the
    clocks may differ and the order stays.
    """
    broken = _broken(rows, before.instance, rows.start_ns, rows.end_ns, tolerance_ns=TOLERANCE_NS)
    doubtful = {
        i for i, lane in enumerate(rows.lanes) if lane.loose or (lane.bare and broken[i] > BROKEN)
    }
    return _rematched(rows, before, doubtful, rows.start_ns, rows.end_ns, TOLERANCE_NS)


def rematched(rows: Rows, before: Matched, shift_ns: Longs, *, tolerance_ns: int) -> Matched:
    """The matching after clocks were aligned: lanes that cannot be are matched by their ends."""
    start, end = rows.start_ns - shift_ns[rows.rank], rows.end_ns - shift_ns[rows.rank]
    broken = _broken(rows, before.instance, start, end, tolerance_ns=tolerance_ns)
    doubtful = {
        i for i, sure in enumerate(before.sure) if sure == 0 or (sure == 1 and broken[i] > BROKEN)
    }
    return _rematched(rows, before, doubtful, start, end, tolerance_ns)


def _rematched(
    rows: Rows, before: Matched, lanes: set[int], start: Longs, end: Longs, tolerance_ns: int
) -> Matched:
    """`lanes` matched by their ends, where that finds at least half of what was matched before."""
    instance, sure = before.instance.copy(), before.sure.copy()
    base = int(instance.max(initial=-1)) + 1
    for lane, blocks in blocks_of(rows).items():
        if lane not in lanes:
            continue
        at = np.concatenate([b.rows for b in blocks])
        ids = _by_time(rows, at, start, end, tolerance_ns=tolerance_ns)
        met_before = np.count_nonzero(before.instance[at] >= 0)
        if np.count_nonzero(_shared(ids)) >= max(0.5 * met_before, 1):
            instance[at] = np.where(ids >= 0, ids + base, -1)
            base += int(ids.max(initial=-1)) + 1
            sure[lane] = 0
    return Matched(instance=met(rows, instance), sure=sure)


def _shared(ids: Longs) -> Bools:
    """Rows whose instance has another row."""
    counts = np.bincount(ids[ids >= 0], minlength=1)
    shared: Bools = (ids >= 0) & (counts[np.maximum(ids, 0)] > 1)
    return shared


def _broken(rows: Rows, instance: Longs, start: Longs, end: Longs, *, tolerance_ns: int) -> Doubles:
    """Of each lane the share of instances that somebody left before the last had come."""
    at = np.flatnonzero(instance >= 0)
    count = int(instance.max(initial=-1)) + 1
    last = np.full(count, np.iinfo(np.int64).min)
    left = np.full(count, np.iinfo(np.int64).max)
    lane = np.zeros(count, np.int64)
    np.maximum.at(last, instance[at], start[at])
    np.minimum.at(left, instance[at], end[at])
    lane[instance[at]] = rows.lane[at]
    wrong = (left < last - tolerance_ns).astype(float)
    lanes = len(rows.lanes)
    total = np.bincount(lane, minlength=lanes)
    share: Doubles = np.bincount(lane, weights=wrong, minlength=lanes) / np.maximum(total, 1)
    return share


def _by_time(rows: Rows, at: Longs, start: Longs, end: Longs, *, tolerance_ns: int) -> Longs:
    """Kernels of one token that end together are one instance; of a rank only one can be in it."""
    order = np.lexsort((end[at], rows.token[at]))
    row = at[order]
    token, ends, rank = rows.token[row], end[row], rows.rank[row]
    new = np.concatenate([[True], (np.diff(token) != 0) | (np.diff(ends) > tolerance_ns)])
    cluster = np.cumsum(new) - 1
    again = _repeated(cluster, rank)
    if again.any():
        _split_repeated(cluster, rank, again, new)
        cluster = np.cumsum(new) - 1
    count = int(cluster[-1]) + 1 if len(cluster) else 0
    last = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last, cluster, start[row])
    possible = ends >= last[cluster] - tolerance_ns
    result = np.empty(len(at), np.int64)
    result[order] = np.where(possible, cluster, -1)
    return result


def _repeated(cluster: Longs, rank: Ints) -> Bools:
    """Clusters that have a rank twice."""
    count = int(cluster[-1]) + 1 if len(cluster) else 0
    order = np.lexsort((rank, cluster))
    twice = (np.diff(cluster[order]) == 0) & (np.diff(rank[order]) == 0)
    result = np.zeros(count, bool)
    result[cluster[order][1:][twice]] = True
    return result


def _split_repeated(
    cluster: Longs,
    rank: Ints,
    again: Bools,
    new: Bools,
) -> None:
    """Begins a new cluster, in `new`, wherever a rank comes up again."""
    for number in np.flatnonzero(again).tolist():
        low, high = np.searchsorted(cluster, [number, number + 1])
        seen: set[int] = set()
        for i in range(int(low), int(high)):
            if int(rank[i]) in seen:
                new[i] = True
                seen = set()
            seen.add(int(rank[i]))
