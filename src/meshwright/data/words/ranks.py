"""How many of a column's elements are marked before any place of it, without a sum for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from meshwright.data.documents import Mask, Offsets

_ONE, _LOW = np.uint64(1), np.uint64(63)


class Ranks:
    """The marks as bits, 64 to a number, and their sum up to each number."""

    def __init__(self, marks: Mask) -> None:
        packed = np.zeros((len(marks) // 64 + 1) * 8, dtype=np.uint8)
        packed[: -(-len(marks) // 8)] = np.packbits(marks, bitorder="little")
        self._bits = packed.view("<u8")
        self._sums = np.zeros(len(self._bits), dtype=np.int64)
        np.cumsum(np.bitwise_count(self._bits[:-1]), out=self._sums[1:])

    def before(self, places: Offsets) -> Offsets:
        """The marks before each place, which may be the end."""
        number = places >> 6
        bits = self._bits[number]
        bits &= (_ONE << (places.view(np.uint64) & _LOW)) - _ONE
        found = self._sums[number]
        found += np.bitwise_count(bits)
        return np.asarray(found, dtype=np.int64)
