"""The order of rows in an epoch: a seeded permutation that is computed, not stored.

`permuted` gives the row at any place of an epoch without the places before it, in memory that does
not grow with the number of rows: rows are pairs (left, right) of about sqrt(size) values each;
every round adds a hash of one half to the other (a generalized Feistel network: Black & Rogaway
2002, "Ciphers with Arbitrary Finite Domains", section 5), and the few results beyond the last row
are sent through again until they fall below it (cycle walking, section 4). The hash is the
finalizer of SplitMix64 (Steele, Lea & Flood 2014, figure 17).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDS = 16  # with 8, permutations of 5 rows are visibly uneven
LARGEST = 2**62  # rows; halves stay below 2^31
_WORD = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key_of(*numbers: int) -> int:
    """One 64-bit key for several numbers (seed, epoch, source), each of which changes all of it."""
    key = 0
    for number in numbers:
        key = _mixed_word((key + _STEP) ^ _mixed_word(number & _WORD))
    return key


def permuted(places: NDArray[np.int64], *, size: int, key: int) -> NDArray[np.int64]:
    """The row at each place (0 <= place < size <= 2^62) of the permutation that `key` names."""
    if size == 1:
        return np.zeros_like(places)
    values = places.astype(np.uint64)
    values = _rounds(values, size=size, key=key)
    beyond = np.flatnonzero(values >= size)
    while len(beyond):
        values[beyond] = _rounds(values[beyond], size=size, key=key)
        beyond = beyond[values[beyond] >= size]
    return values.astype(np.int64)


def _rounds(values: NDArray[np.uint64], *, size: int, key: int) -> NDArray[np.uint64]:
    """All rounds over the smallest rectangle of pairs, nearly a square, that holds `size`."""
    lefts = math.isqrt(size - 1) + 1
    rights = -(-size // lefts)
    left, right = np.divmod(values, np.uint64(rights))
    for number in range(0, ROUNDS, 2):
        left = _added(left, right, below=lefts, key=key_of(key, number))
        right = _added(right, left, below=rights, key=key_of(key, number + 1))
    joined: NDArray[np.uint64] = left * np.uint64(rights) + right
    return joined


def _added(half: Any, other: Any, *, below: int, key: int) -> NDArray[np.uint64]:
    """half + hash(other), modulo `below`."""
    hashed = _mixed(other ^ np.uint64(key)) >> np.uint64(32)
    total = half + ((hashed * np.uint64(below)) >> np.uint64(32))
    wrapped: NDArray[np.uint64] = np.where(total >= below, total - np.uint64(below), total)
    return wrapped


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer of each word."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_FIRST)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_SECOND)
    mixed: NDArray[np.uint64] = words ^ (words >> np.uint64(31))
    return mixed


def _mixed_word(word: int) -> int:
    """The same of one word."""
    word &= _WORD
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)
