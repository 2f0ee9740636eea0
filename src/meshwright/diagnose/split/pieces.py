"""Stretches of host events: which of nested ones is at work, and what lies outside of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Operators


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Stretches of events, each of a `row` of a table."""

    row: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]

    def where(self, mask: Any) -> Pieces:
        """Those for which the mask is true."""
        return Pieces(row=self.row[mask], start_ns=self.start_ns[mask], end_ns=self.end_ns[mask])


def innermost(ops: Operators, rows: NDArray[np.int64]) -> Pieces:
    """Of nested events on one thread, at each moment the innermost; events in order of start.

    An event that outlives the one that it began in is cut at its end.
    """
    found: list[tuple[int, int, int]] = []
    for thread in np.unique(ops.thread[rows]):
        own = rows[ops.thread[rows] == thread]
        _sweep(own.tolist(), ops.start_ns[own].tolist(), ops.end_ns[own].tolist(), found)
    found.sort(key=lambda piece: (piece[1], -piece[2]))
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Pieces(row=table[:, 0], start_ns=table[:, 1], end_ns=table[:, 2])


def _sweep(
    rows: list[int], starts: list[int], ends: list[int], found: list[tuple[int, int, int]]
) -> None:
    """Adds (row, start, end) of one thread; `at` is up to where its time has been given away."""
    stack: list[tuple[int, int]] = []  # rows that are open, with their ends
    at = 0
    for row, start, end in zip(rows, starts, ends, strict=True):
        while stack and stack[-1][1] <= start:
            inner, until = stack.pop()
            if until > at:
                found.append((inner, at, until))
                at = until
        if stack:
            if start > at:
                found.append((stack[-1][0], at, start))
            end = min(end, stack[-1][1])
        at = max(at, start)
        stack.append((row, end))
    while stack:
        inner, until = stack.pop()
        if until > at:
            found.append((inner, at, until))
            at = until


def outside(pieces: Pieces, spans: NDArray[np.int64]) -> Pieces:
    """The pieces without what of them lies in `spans` ([n, 2], in order and disjoint)."""
    if not len(spans) or not len(pieces.row):
        return pieces
    first = np.searchsorted(spans[:, 1], pieces.start_ns, side="right")
    last = np.searchsorted(spans[:, 0], pieces.end_ns, side="left")
    kept = pieces.where(first >= last)
    cut: list[tuple[int, int, int]] = []
    touched = np.flatnonzero(first < last)
    for index in touched.tolist():
        at, until = int(pieces.start_ns[index]), int(pieces.end_ns[index])
        for begin, end in spans[first[index] : last[index]].tolist():
            if begin > at:
                cut.append((int(pieces.row[index]), at, begin))
            at = max(at, end)
        if until > at:
            cut.append((int(pieces.row[index]), at, until))
    more = np.array(cut, dtype=np.int64).reshape(-1, 3)
    row = np.concatenate([kept.row, more[:, 0]])
    start = np.concatenate([kept.start_ns, more[:, 1]])
    end = np.concatenate([kept.end_ns, more[:, 2]])
    order = np.lexsort((-end, start))
    return Pieces(row=row[order], start_ns=start[order], end_ns=end[order])
