"""Who sets the pace of a pipeline.

Stages wait for each other all the time, most of all while the pipeline fills and drains: the chain
of the longest waits says little. The stage that is busiest between its sends sets the pace; where
all are as busy, nobody is waited for but by design.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.across.blame import NOBODY, UNKNOWN

if TYPE_CHECKING:
    from meshwright.diagnose.across.table import Bools, Doubles, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.across.work import Work
    from meshwright.diagnose.trace.columns import Longs

BUSIER = 1.05  # than the median of its pipeline, for a rank to set the pace
MATES = 0.5  # share of what it is busier by, that it must have waited for others of its stage


def pace_of(rows: Rows, waits: Waits, work: Work, handed: Bools, blocked_ns: Doubles) -> Longs:
    """For each instance of `handed` the place of the rank that sets the pace; see `blame_of`.

    UNKNOWN for the others, and where the steps of the ranks were not accounted for.
    """
    found = np.full(len(waits), UNKNOWN, np.int64)
    if not handed.any():
        return found
    pipeline = _pipelines(rows, waits, handed)
    inside = ~handed & ~_crossing(rows, waits, pipeline)
    held, whom = _held_up(rows, waits, inside, blocked_ns, work.own_us.shape)
    busy = work.own_us + held
    for number in np.unique(pipeline[pipeline >= 0]):
        members = np.flatnonzero(pipeline == number)
        paced = _paced(members, busy, held, whom)
        mine = handed & (pipeline[rows.rank[waits.row[waits.last]]] == number)
        step = np.maximum(rows.step[waits.row[waits.last]][mine], 0)
        found[mine] = paced[step]
    return found


def _pipelines(rows: Rows, waits: Waits, handed: Bools) -> Longs:
    """A number to all ranks that sends join, -1 for ranks without any."""
    number = np.arange(len(rows.ranks))
    at = handed[waits.of]
    rank, of = rows.rank[waits.row[at]], waits.of[at]
    first = np.concatenate([[True], np.diff(of) != 0])
    anchor = rank[np.maximum.accumulate(np.where(first, np.arange(len(of)), 0))]
    pairs = np.unique(np.stack([rank[~first], anchor[~first]]), axis=1)
    while True:  # smaller numbers spread along the pipelines
        before = number.copy()
        least = np.minimum(number[pairs[0]], number[pairs[1]])
        np.minimum.at(number, pairs[0], least)
        np.minimum.at(number, pairs[1], least)
        if np.array_equal(before, number):
            break
    number[np.setdiff1d(np.arange(len(number)), rank)] = -1
    return number


def _crossing(rows: Rows, waits: Waits, pipeline: Longs) -> Bools:
    """Instances in which two stages of one pipeline meet."""
    number = pipeline[rows.rank[waits.row]]
    order = np.lexsort((number, waits.of))
    twice = (np.diff(waits.of[order]) == 0) & (np.diff(number[order]) == 0)
    found = np.zeros(len(waits), bool)
    found[waits.of[order][1:][twice & (number[order][1:] >= 0)]] = True
    return found


def _held_up(
    rows: Rows, waits: Waits, inside: Bools, blocked_ns: Doubles, shape: tuple[int, ...]
) -> tuple[Doubles, Longs]:
    """Microseconds that each rank waited in a step for others of its stage, and mostly for whom."""
    at = inside[waits.of]
    step = np.maximum(rows.step[waits.row[at]], 0).astype(np.int64)
    cell = rows.rank[waits.row[at]].astype(np.int64) * shape[1] + step
    cells = shape[0] * shape[1]
    blocked = blocked_ns[at] / 1000.0
    last = rows.rank[waits.row[waits.last]][waits.of[at]]
    total = np.bincount(cell, weights=blocked, minlength=cells)
    key, inverse = np.unique(cell * shape[0] + last, return_inverse=True)
    summed = np.bincount(inverse, weights=blocked, minlength=len(key))
    whom = np.full(cells, -1, np.int64)
    order = np.argsort(summed, kind="stable")
    whom[key[order] // shape[0]] = key[order] % shape[0]  # the largest is written last
    return total.reshape(shape).astype(float), whom.reshape(shape)


def _paced(members: Longs, busy: Doubles, held: Doubles, whom: Longs) -> Longs:
    """Of each step the rank that sets the pace of a pipeline, or one that it waits for itself."""
    mine = busy[members]
    known = ~np.isnan(mine).any(axis=0)
    result = np.full(busy.shape[1], UNKNOWN, np.int64)
    for step in np.flatnonzero(known).tolist():
        most = int(np.argmax(mine[:, step]))
        usual = float(np.median(mine[:, step]))
        over = float(mine[most, step]) - usual
        rank = int(members[most])
        if mine[most, step] < BUSIER * usual:
            result[step] = NOBODY
        elif held[rank, step] - np.median(held[members, step]) >= MATES * over:
            result[step] = whom[rank, step]
        else:
            result[step] = rank
    return result


__all__ = ["pace_of"]
