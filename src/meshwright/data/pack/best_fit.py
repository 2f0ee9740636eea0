"""Best-fit decreasing: no document is cut that fits a row, and next to nothing is padding.

Pieces are placed from the longest to the shortest, each where the least room is left that it fits
(Ding et al. 2024, arXiv 2404.10830, section 3.2). Rows with equal room are alike, and so are
pieces of equal length: they are placed together, and only how many is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.pack.pieces import pieces_of
from meshwright.data.pack.rows import Rows, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAF_BITS = 10


def best_fit(lengths: NDArray[np.integer], seq_len: int) -> Rows:
    """Full pieces alone in their rows, then all others by best fit, equal ones in their order.

    Takes about a microsecond for each document, less where many are of the same length; memory by
    the number of documents and the longest piece, not by `seq_len`.
    """
    document, offset, length = pieces_of(lengths, seq_len)
    order = np.argsort(-length, kind="stable")
    counts = np.bincount(length)
    row = np.empty(len(length), dtype=np.int64)
    row[order] = _rows_by_fit(counts, seq_len)
    return rows_of(row, document, offset, lengths=length, seq_len=seq_len)


def _rows_by_fit(counts: NDArray[np.int64], seq_len: int) -> NDArray[np.int64]:
    """The row of each piece, from the longest to the shortest; counts[l] pieces have length l."""
    placed: list[int] = []
    rooms = Rooms(seq_len)
    opened = 0
    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            room = rooms.least(length)
            if room < 0:
                room = seq_len
                needed = -(-left // (room // length))
                rows = list(range(opened, opened + needed))
                opened += needed
            else:
                rows = rooms.take(room, -(-left // (room // length)))
            left -= _fill(placed, rooms, rows, room=room, length=length, left=left)
    return np.array(placed, dtype=np.int64)


def _fill(
    placed: list[int], rooms: Rooms, rows: list[int], *, room: int, length: int, left: int
) -> int:
    """Puts up to `left` pieces into rows with equal room; returns how many found a place.

    A row that still fits a piece has the least room of all that do, so it is filled up before
    the next one; only the last row may stay with room for another.
    """
    each = room // length
    if each == 1:
        placed += rows
        rooms.add(room - length, rows)
        return len(rows)
    full = min(len(rows), left // each)
    for row in rows[:full]:
        placed += [row] * each
    rooms.add(room - each * length, rows[:full])
    rest = left - full * each if full < len(rows) else 0
    placed += rows[full:] * rest
    rooms.add(room - rest * length, rows[full:])
    return full * each + rest


class Rooms:
    """Rows by the room they have left, with a bit for each room that some row has.

    The bits are held in two levels, so that the next one is found in the same time however long
    the rows are.
    """

    def __init__(self, seq_len: int) -> None:
        self.rows: dict[int, list[int]] = {}  # without those that are empty
        self.leaves = [0] * ((seq_len >> _LEAF_BITS) + 1)
        self.top = 0

    def least(self, wanted: int) -> int:
        """The least room of at least `wanted` that some row has; -1 when none has."""
        leaf = wanted >> _LEAF_BITS
        bits = self.leaves[leaf] >> (wanted & ((1 << _LEAF_BITS) - 1))
        if bits:
            return wanted + (bits & -bits).bit_length() - 1
        above = self.top >> (leaf + 1)
        if not above:
            return -1
        leaf += (above & -above).bit_length()
        bits = self.leaves[leaf]
        return (leaf << _LEAF_BITS) + (bits & -bits).bit_length() - 1

    def take(self, room: int, count: int) -> list[int]:
        """Up to `count` rows with that room, those last added."""
        rows = self.rows.get(room, [])
        taken = rows[-count:]
        del rows[-count:]
        if not rows:
            self.rows.pop(room, None)
            leaf = room >> _LEAF_BITS
            self.leaves[leaf] &= ~(1 << (room & ((1 << _LEAF_BITS) - 1)))
            if not self.leaves[leaf]:
                self.top &= ~(1 << leaf)
        return taken

    def add(self, room: int, rows: list[int]) -> None:
        """Rows that now have that room; full ones are forgotten."""
        if room and rows:
            self.rows.setdefault(room, []).extend(rows)
            leaf = room >> _LEAF_BITS
            self.leaves[leaf] |= 1 << (room & ((1 << _LEAF_BITS) - 1))
            self.top |= 1 << leaf
