"""64-bit hashes of many stretches of one text at once.

A stretch is read in blocks of 8 bytes, the last one filled with zeros. Each block is mixed by
itself with a constant of its place (two multiplications, each followed by a shift that carries the
high bits down); the mixed blocks and the length are summed and mixed again. Every step is a
bijection of 64 bits, so that different stretches of up to 8 bytes and equal length never collide,
and there is no polynomial whose zeros one could meet (as Thue-Morse strings are for any base
modulo 2^64). The hash of a stretch does not depend on where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_PLACE = np.uint64(0x9E3779B97F4A7C15)  # odd, from the golden ratio
_FIRST = np.uint64(0xD6E8FEB86659FD93)  # odd multipliers, as mixers of 64 bits use them
_SECOND = np.uint64(0xFF51AFD7ED558CCD)
_DOWN = np.uint64(32)
_LATE = np.uint64(29)
_KEPT = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)  # of a block, by bytes


def mixed(values: Hashes) -> Hashes:
    """Each value scattered over 64 bits, in place; a bijection."""
    values *= _FIRST
    values ^= values >> _DOWN
    values *= _SECOND
    values ^= values >> _LATE
    return values


def hashes_of(
    text: bytes,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    extra: Hashes | None = None,
) -> Hashes:
    """The hash of text[start:start + length] for each stretch (of at least one byte).

    `text` is followed by 8 bytes of anything that belong to no stretch. `extra` is added to the sum
    of each before the last mixing.
    """
    words = np.ndarray((max(len(text) - 7, 0),), "<u8", buffer=text, strides=(1,))
    total = words[starts]
    total &= _KEPT[np.minimum(lengths, 8)]
    total += _PLACE
    mixed(total)
    long = np.flatnonzero(lengths > 8)
    if len(long):
        total[long] += _later_blocks(words, starts[long], lengths[long])
    if extra is not None:
        total += extra
    total += lengths.astype(np.uint64) * _PLACE
    return mixed(total)


def hashes_of_ends(text: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """A hash of the first and last 8 bytes and the length of each: different ones differ surely."""
    words = np.ndarray((max(len(text) - 7, 0),), "<u8", buffer=text, strides=(1,))
    kept = _KEPT[np.minimum(lengths, 8)]
    total = words[starts] & kept
    total += _PLACE
    mixed(total)
    total += words[starts + np.maximum(lengths - 8, 0)] & kept
    total += lengths.astype(np.uint64) * _PLACE
    return mixed(total)


def _later_blocks(
    words: NDArray[np.uint64], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Hashes:
    """Sum of the mixed blocks of each stretch, but for the first one."""
    blocks = (lengths - 1) >> 3
    first = np.cumsum(blocks)
    first -= blocks
    place = np.arange(1, int(blocks.sum()) + 1, dtype=np.int64)
    place -= np.repeat(first, blocks)
    offset = place << 3
    values = words[np.repeat(starts, blocks) + offset]
    left = np.repeat(lengths, blocks)
    left -= offset
    values &= _KEPT[np.minimum(left, 8)]
    place += 1
    values += place.astype(np.uint64) * _PLACE
    return np.add.reduceat(mixed(values), first)
