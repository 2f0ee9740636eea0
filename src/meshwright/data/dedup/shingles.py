"""Shingles: the runs of `words` consecutive words of a document, each as a 64-bit hash."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from meshwright.data.documents import bounds_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Bounds = NDArray[np.int64]

_BASE = np.uint64(0x9E3779B97F4A7C15)
_STRETCH = 1 << 15  # windows hashed at a time, so that they stay in the cache


class Words(Protocol):
    """The part of `words.table.Table` that is read here."""

    @property
    def word_hash(self) -> Hashes:
        """64-bit hash of every word."""

    @property
    def word_bounds(self) -> Bounds:
        """Where the words of each document begin, and where the last one's end."""


def shingles_of(table: Words, words: int) -> tuple[Hashes, Bounds]:
    """The shingles of every document in order, with their bounds [documents + 1].

    A document of fewer words is one shingle of all its words; one without words has none. The hash
    of words w1..wk is mix(w1 B^(k-1) + ... + wk) modulo 2^64: it depends on their order.
    """
    hashes, bounds = table.word_hash, np.asarray(table.word_bounds, dtype=np.int64)
    counts = np.diff(bounds)
    windows = _windows(hashes, words)
    for length in range(1, words):
        _whole(hashes, bounds[:-1][counts == length], length=length, windows=windows)
    is_shingle = np.ones(len(hashes), dtype=np.bool_)
    for cut in range(1, words):  # the last windows of a document reach into the next one
        is_shingle[bounds[1:][counts >= cut] - cut] = False
    is_shingle[bounds[:-1][(counts > 0) & (counts < words)]] = True
    number = np.maximum(counts - (words - 1), np.minimum(counts, 1))
    return windows[is_shingle], bounds_of(number)


def shingle_sets(table: Words, words: int) -> tuple[Hashes, Bounds]:
    """As `shingles_of`, but of every document the distinct ones, sorted."""
    hashes, bounds = shingles_of(table, words)
    for first, last in pairwise(bounds.tolist()):
        hashes[first:last].sort()
    is_new = np.ones(len(hashes), dtype=np.bool_)
    is_new[1:] = hashes[1:] != hashes[:-1]
    is_new[bounds[:-1][np.diff(bounds) > 0]] = True
    return hashes[is_new], bounds_of(is_new.astype(np.int8))[bounds]


def mix(values: Hashes) -> None:
    """Spreads every bit over all, in place: the finalizer of MurmurHash3, a bijection."""
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)


def _windows(hashes: Hashes, words: int) -> Hashes:
    """The hash of the window that starts at each word; nothing where it would pass the end."""
    windows = np.zeros(len(hashes), dtype=np.uint64)
    last = len(hashes) - words + 1
    for start in range(0, last, _STRETCH):
        stretch = windows[start : min(start + _STRETCH, last)]
        for offset in range(words):
            stretch *= _BASE
            stretch += hashes[start + offset : start + offset + len(stretch)]
        mix(stretch)
    return windows


def _whole(hashes: Hashes, starts: Bounds, *, length: int, windows: Hashes) -> None:
    """Sets the first window of documents of `length` words to all their words."""
    whole = np.full(len(starts), length, dtype=np.uint64)
    for offset in range(length):
        whole *= _BASE
        whole += hashes[starts + offset]
    mix(whole)
    windows[starts] = whole
