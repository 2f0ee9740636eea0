"""Runs of n consecutive words that a document repeats.

Runs are found by their hashes, which are compared within a document only. Most documents repeat
little: what cannot matter is left out by bounds that are cheap to compute, the rest is sorted.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.words.groups import Groups, maybe_shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.documents import Mask, Offsets

    Hashes = NDArray[np.uint64]
    Limits = Mapping[int, float]  # of the share, by n
    Shares = dict[int, NDArray[np.float64]]  # by n: one for each document

_NEXT = np.uint64(0x9FB21C651E98DF25)  # odd: what a hash is multiplied by for each further word
_SCATTER = np.uint64(0x9E3779B97F4A7C15)
_BUCKETS = 256  # of a document, at most


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """The words of documents by their hashes, and what each counts for.

    Document i has the words bounds[i] to bounds[i + 1], and counts for whole[i].
    """

    words: Hashes
    weights: Offsets
    bounds: Offsets
    whole: Offsets

    @property
    def counts(self) -> Offsets:
        """Words of each document."""
        return np.diff(self.bounds)

    @cached_property
    def total(self) -> Offsets:
        """The weight of all words before each, and of all."""
        return bounds_of(self.weights)

    @cached_property
    def owner(self) -> NDArray[np.int32]:
        """The document of each word."""
        return np.repeat(np.arange(len(self.whole), dtype=np.int32), self.counts)

    def take(self, chosen: Mask) -> Weighed:
        """Those documents that `chosen` marks."""
        if chosen.all():
            return self
        held = np.repeat(chosen, self.counts)
        return Weighed(
            words=self.words[held],
            weights=self.weights[held],
            bounds=bounds_of(self.counts[chosen]),
            whole=self.whole[chosen],
        )

    def shares(self, weights: NDArray[np.integer] | NDArray[np.floating]) -> NDArray[np.float64]:
        """Weights of each document as shares of what it counts for."""
        return np.asarray(weights / np.maximum(self.whole, 1), dtype=np.float64)


def top_runs(weighed: Weighed, limits: Limits) -> Shares:
    """The share of all occurrences of each document's commonest run of n words (2, 3, 4), by n.

    The run must occur twice; among equally common ones the first in the text counts. 0 where the
    share is certainly not above the limit. A run of up to 4 words is covered by two pairs, and no
    pair is heavier than the bucket, of those into which pairs fall by their hash, that it is in:
    few documents need more than that one look.
    """
    heaviest = _heaviest_bucket(weighed)
    found = {}
    for n, limit in limits.items():
        bound = weighed.shares(heaviest if n == 2 else 2 * heaviest)
        chosen = (bound > limit) & (weighed.counts > n)
        found[n] = np.zeros(len(weighed.whole))
        if chosen.any():
            found[n][chosen] = _top(weighed.take(chosen), n)
    return found


def _top(weighed: Weighed, n: int) -> NDArray[np.float64]:
    """The same for every document."""
    hashes, places = hashes_of_runs(weighed, n)
    left = maybe_shared(hashes, weighed.owner[places])
    hashes, places = hashes[left], places[left]
    owner = weighed.owner[places]
    groups = Groups.of(hashes, owner)
    heavy = _weights_of_runs(weighed, n)[places]
    sums = np.add.reduceat(heavy[groups.order], groups.begins) if len(left) else heavy
    counts, first = groups.counts, groups.first
    best = np.lexsort((first, -counts, owner[first]))
    best = best[np.diff(owner[first][best], prepend=-1) != 0]
    best = best[counts[best] > 1]
    found = np.zeros(len(weighed.whole), dtype=np.int64)
    found[owner[first][best]] = sums[best]
    return weighed.shares(found)


def _heaviest_bucket(weighed: Weighed) -> NDArray[np.float64]:
    """A weight that no pair of words of a document exceeds, all its occurrences together."""
    documents, buckets = len(weighed.whole), _BUCKETS
    while buckets > 1 and documents * buckets > 2 * len(weighed.words):
        buckets >>= 1
    pairs = _chained(weighed.words, 2)
    bucket = (pairs * _SCATTER >> np.uint64(56)).astype(np.int64) & (buckets - 1)
    bucket += weighed.owner[: len(pairs)].astype(np.int64) * buckets
    heavy = np.bincount(bucket, _weights_of_runs(weighed, 2), minlength=documents * buckets)
    return np.asarray(heavy.reshape(documents, buckets).max(axis=1, initial=0))


def repeated_runs(weighed: Weighed, limits: Limits) -> Shares:
    """The share of the words in runs of n words that stand earlier in the document, by n.

    The n are consecutive. What is in a repeated run of n + 1 words is in repeated runs of n words,
    so each step looks at what the one before left. 0 where the share is certainly not above the
    limit, or where a shorter run is above its own.
    """
    owner, levels = weighed.owner, sorted(limits)
    hashes, places = hashes_of_runs(weighed, levels[0])
    left = maybe_shared(hashes, owner[places])
    hashes, places = hashes[left], places[left]
    found = {}
    for n in levels:
        groups = Groups.of(hashes, owner[places])
        found[n] = weighed.shares(_covered(weighed, places[groups.is_later], n))
        least = min((limits[level] for level in levels if level > n), default=np.inf)
        is_open = (found[n] <= limits[n]) & (found[n] > least)
        members = np.flatnonzero(groups.is_shared & is_open[owner[places]])
        hashes, places = _longer(weighed, hashes[members], places=places[members], n=n)
    return found


def hashes_of_runs(weighed: Weighed, n: int) -> tuple[Hashes, Offsets]:
    """Hashes of the runs of n words that lie within a document; the word that each begins with."""
    hashes = _chained(weighed.words, n)
    within = np.ones(len(weighed.words), dtype=np.bool_)
    for back in range(1, n):
        within[weighed.bounds[1:][weighed.counts >= back] - back] = False
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


def _weights_of_runs(weighed: Weighed, n: int) -> Offsets:
    """The weights of n consecutive words, for every run as `_chained` has them."""
    return weighed.total[n:] - weighed.total[:-n]


def _longer(weighed: Weighed, hashes: Hashes, *, places: Offsets, n: int) -> tuple[Hashes, Offsets]:
    """Runs of n + 1 words whose both runs of n words are among those given."""
    both = np.flatnonzero(np.diff(places) == 1)
    places = places[both]
    return hashes[both] * _NEXT + weighed.words[places + n], places


def _covered(weighed: Weighed, places: Offsets, n: int) -> Offsets:
    """Weight, in each document, of the words in the runs of n words at the ascending `places`."""
    stops = places + n
    np.minimum(stops[:-1], places[1:], out=stops[:-1])  # each word once
    covered = bounds_of(weighed.total[stops] - weighed.total[places])
    return np.diff(covered[np.searchsorted(places, weighed.bounds)])
