"""Runs of n consecutive words that a document repeats.

Runs are found by their hashes, which are compared within a document only. Most documents repeat
little: what cannot matter is left out by bounds that are cheap to compute, the rest is sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.documents import bounds_of
from meshwright.data.words.groups import Groups, maybe_shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.documents import Offsets
    from meshwright.data.words.table import Table

    Hashes = NDArray[np.uint64]
    Limits = Mapping[int, NDArray[np.float64]]  # by n: one for each document

_NEXT = np.uint64(0x9FB21C651E98DF25)  # odd: what a hash is multiplied by for each further word
_SCATTER = np.uint64(0x9E3779B97F4A7C15)
_BUCKETS = 256  # of a document, at most


def top_runs(table: Table, weights: Offsets, *, above: Limits) -> dict[int, Offsets]:
    """Weight of all occurrences of each document's commonest run of n words, by n (2, 3, 4).

    The run must occur twice; among equally common ones the first in the text counts. 0 where the
    weight is certainly not above the document's limit. A run of up to 4 words is covered by two
    pairs, and no pair is heavier than the bucket, of those into which pairs fall by their hash,
    that it is in: few documents need more than that one look.
    """
    heaviest = _heaviest_bucket(table, weights)
    found = {}
    for n, limits in above.items():
        found[n] = np.zeros(len(table), dtype=np.int64)
        chosen = ((1 if n == 2 else 2) * heaviest > limits) & (table.word_counts > n)
        if chosen.any():
            words = np.repeat(chosen, table.word_counts)
            found[n][chosen] = _top(table.take(chosen), weights[words], n)
    return found


def _top(table: Table, weights: Offsets, n: int) -> Offsets:
    """The same for all documents of a table."""
    hashes, places = hashes_of_runs(table, n)
    owner = table.word_document[places]
    groups = Groups.of(hashes, owner)
    heavy = weights_of_runs(weights, n)[places]
    sums = np.add.reduceat(heavy[groups.order], groups.begins)
    counts, first = groups.counts, groups.first
    best = np.lexsort((first, -counts, owner[first]))
    best = best[np.diff(owner[first][best], prepend=-1) != 0]
    best = best[counts[best] > 1]
    found = np.zeros(len(table), dtype=np.int64)
    found[owner[first][best]] = sums[best]
    return found


def _heaviest_bucket(table: Table, weights: Offsets) -> NDArray[np.float64]:
    """A weight that no pair of words of a document exceeds, all its occurrences together."""
    documents, buckets = len(table), _BUCKETS
    while buckets > 1 and documents * buckets > 2 * len(weights):
        buckets >>= 1
    pairs = _chained(table.word_hash, 2)
    bucket = (pairs * _SCATTER >> np.uint64(56)).astype(np.int64) & (buckets - 1)
    bucket += table.word_document[: len(pairs)].astype(np.int64) * buckets
    heavy = np.bincount(bucket, weights_of_runs(weights, 2), minlength=documents * buckets)
    return np.asarray(heavy.reshape(documents, buckets).max(axis=1, initial=0))


def repeated_runs(table: Table, weights: Offsets, *, above: Limits) -> dict[int, Offsets]:
    """Weight of the words in runs of n words that stand earlier in the document, by n.

    `above` has consecutive n; 0 where the weight is certainly not above the document's limit. What
    is in a repeated run of n + 1 words is in repeated runs of n words, so each step looks at what
    the one before left, and only at documents that may still break a limit.
    """
    levels = sorted(above)
    hashes, places = hashes_of_runs(table, levels[0])
    left = maybe_shared(hashes, table.word_document[places])
    hashes, places = hashes[left], places[left]
    found = {}
    for n in levels:
        groups = Groups.of(hashes, table.word_document[places])
        found[n] = _covered(table, weights, places[groups.is_later], n)
        open_ = np.zeros(len(table), dtype=np.bool_)
        for level in levels:
            open_ |= (found[n] > above[level]) & (level > n)
        members = np.flatnonzero(groups.is_shared & open_[table.word_document[places]])
        hashes, places = _longer(table, hashes[members], places[members], n)
    return found


def hashes_of_runs(table: Table, n: int) -> tuple[Hashes, Offsets]:
    """Hashes of the runs of n words that lie within a document; the word that each begins with."""
    hashes = _chained(table.word_hash, n)
    within = np.ones(len(table.word_hash), dtype=np.bool_)
    for back in range(1, n):
        within[table.word_bounds[1:][table.word_counts >= back] - back] = False
    places = np.flatnonzero(within[: len(hashes)])
    return hashes[places], places


def _chained(words: Hashes, n: int) -> Hashes:
    """Hashes of all runs of n words, those over the border of two documents included."""
    count = max(len(words) - n + 1, 0)
    hashes = words[:count].copy()
    for further in range(1, n):
        hashes *= _NEXT
        hashes += words[further : further + count]
    return hashes


def weights_of_runs(weights: Offsets, n: int) -> Offsets:
    """The weights of n consecutive words, for every run as `_chained` has them."""
    total = bounds_of(weights)
    return total[n:] - total[:-n]


def _longer(table: Table, hashes: Hashes, places: Offsets, n: int) -> tuple[Hashes, Offsets]:
    """Runs of n + 1 words whose both runs of n words are among those given."""
    both = np.flatnonzero(np.diff(places) == 1)
    places = places[both]
    return hashes[both] * _NEXT + table.word_hash[places + n], places


def _covered(table: Table, weights: Offsets, places: Offsets, n: int) -> Offsets:
    """Weight, in each document, of the words that are in the runs of n words at `places`."""
    change = np.zeros(len(weights) + 1, dtype=np.int32)
    change[places] = 1
    change[places + n] -= 1
    inside = np.flatnonzero(np.cumsum(change[:-1]))
    total = bounds_of(weights[inside])
    bounds = np.searchsorted(inside, table.word_bounds)
    return np.asarray(np.diff(total[bounds]), dtype=np.int64)
