"""Telling documents that share a band key by chance: their sketches differ in too many places.

A sketch is the low byte of each of a document's minima (`minhash.band_keys`), eight to a uint64;
sketches of n documents are an array [words, n]. Two documents agree in a byte with the probability
of their similarity (b-bit minwise hashing, Li and König 2010), so that few of the pairs well below
the threshold need their shingles compared.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.dedup.links import Buckets, joined, pairs_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from meshwright.data.dedup.links import Numbers
    from meshwright.data.settings import Dedup

    Sketches = NDArray[np.uint64]

SMALL = 16  # documents of a bucket that is replaced by its likely pairs
_PAIRS_AT_ONCE = 1 << 14
_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(0x0101010101010101)
_BYTES = np.uint64(0x00FF00FF00FF00FF)
_PAIRS = np.uint64(0x0001000100010001)


def most_differing(settings: Dedup) -> int:
    """In how many places sketches may differ for their documents to be compared shingle by shingle.

    Three standard deviations more than at the threshold: of pairs just there, 1 in 700 is lost.
    """
    slots, bar = settings.bands * settings.rows, settings.threshold
    return math.floor(slots * (1 - bar) + 3 * math.sqrt(slots * bar * (1 - bar)))


def differing(crossed: Sketches) -> NDArray[np.uint64]:
    """How many bytes of sketches differ, from their exclusive or [words, ...]; words up to 255."""
    marks = crossed & _SEVEN
    marks += _SEVEN
    marks |= crossed
    marks >>= np.uint64(7)
    marks &= _ONE  # 1 in each byte that differs
    total: NDArray[np.uint64] = marks.sum(axis=0)
    if len(crossed) < 32:  # no count is above 255
        total *= _ONE
        total >>= np.uint64(56)
        return total
    total = (total & _BYTES) + (total >> np.uint64(8) & _BYTES)
    total *= _PAIRS
    total >>= np.uint64(48)
    return total


def likely(buckets: Buckets, sketches: Callable[[Numbers], Sketches], *, most: int) -> Buckets:
    """The buckets, those of up to `SMALL` documents replaced by their likely pairs.

    A pair is likely when its sketches, which `sketches` gives for numbered documents, differ in no
    more than `most` places. The pairs of larger buckets are looked at when it is known which
    documents are kept: there may be too many of them.
    """
    pairs, larger = pairs_in(buckets, largest=SMALL)
    found = [pairs[:0]]
    for first in range(0, len(pairs), _PAIRS_AT_ONCE):
        some = pairs[first : first + _PAIRS_AT_ONCE]
        crossed = sketches(some[:, 0]) ^ sketches(some[:, 1])
        found.append(some[differing(crossed) <= most])
    return joined(np.concatenate(found), larger)
