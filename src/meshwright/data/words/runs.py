"""Runs of n consecutive words that a document repeats.

Runs are found by their hashes, which are compared within a document only. Most documents repeat
little: what cannot matter is left out by bounds that are cheap to compute, the rest is sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.documents import Mask, Offsets
    from meshwright.data.words.table import Table

    Hashes = NDArray[np.uint64]

_NEXT = np.uint64(0x9FB21C651E98DF25)  # odd: what a hash is multiplied by for each further word
_SCATTER = np.uint64(0x9E3779B97F4A7C15)
_BUCKETS = 256  # of a document, at most
_SLOT_BITS = 20


def top_runs(table: Table, weights: Offsets, n: int, *, above: NDArray[np.float64]) -> Offsets:
    """Weight of all occurrences of each document's commonest run of n words that occurs twice.

    0 where that is certainly not more than `above`. A document's share is bounded by the heaviest
    of some buckets into which its runs fall by their hash.
    """
    hashes, places = hashes_of_runs(table, n)
    total = np.append(0, np.cumsum(weights))
    heavy = total[places + n] - total[places]
    owner = table.word_document[places]
    found = np.zeros(len(table), dtype=np.int64)
    possible = _heaviest_bucket(hashes, owner, heavy, documents=len(table)) > above
    chosen = np.flatnonzero(possible[owner])
    if not len(chosen):
        return found
    order, begins = _grouped(hashes[chosen], owner[chosen])
    counts = np.diff(np.append(begins, len(order)))
    first = order[begins]
    sums = np.add.reduceat(heavy[chosen][order], begins)
    group_owner = owner[chosen][first]
    best = np.lexsort((first, -counts, group_owner))
    best = best[np.diff(group_owner[best], prepend=-1) != 0]
    best = best[counts[best] > 1]
    found[group_owner[best]] = sums[best]
    return found


def repeated_runs(
    table: Table, weights: Offsets, *, above: Mapping[int, NDArray[np.float64]]
) -> dict[int, Offsets]:
    """Weight of the words in runs of n words that stand earlier in the document, by n.

    `above` has consecutive n; 0 where the weight is certainly not above it. What is in a repeated
    run of n + 1 words is in repeated runs of n words, so each step looks at what the one before
    left, and at documents alone that may still break a limit.
    """
    levels = sorted(above)
    hashes, places = hashes_of_runs(table, levels[0])
    owner = table.word_document
    possible = np.flatnonzero(_shares_a_slot(hashes, owner[places]))
    hashes, places = hashes[possible], places[possible]
    found = {}
    for n in levels:
        order, begins = _grouped(hashes, owner[places])
        later = np.ones(len(order), dtype=np.bool_)
        later[begins] = False
        weight = _covered(table, weights, places[order[later]], n)
        found[n] = weight
        ahead = [above[level] for level in levels if level > n]
        if not ahead:
            break
        open_ = weight > np.min(ahead, axis=0)
        repeated = later.copy()
        repeated[:-1] |= later[1:]
        members = np.zeros(len(order), dtype=np.bool_)
        members[order[repeated]] = True
        members &= open_[owner[places]]
        hashes, places = _longer(table, hashes[members], places[members], n)
    return found


def hashes_of_runs(table: Table, n: int) -> tuple[Hashes, Offsets]:
    """Hashes of the runs of n words that lie within a document; the word that each begins with."""
    words = table.word_hash
    count = max(len(words) - n + 1, 0)
    hashes = words[:count].copy()
    for further in range(1, n):
        hashes *= _NEXT
        hashes += words[further : further + count]
    within = np.ones(len(words), dtype=np.bool_)
    for back in range(1, n):
        within[table.word_bounds[1:][table.word_counts >= back] - back] = False
    places = np.flatnonzero(within[:count])
    return hashes[places], places


def _longer(table: Table, hashes: Hashes, places: Offsets, n: int) -> tuple[Hashes, Offsets]:
    """Runs of n + 1 words whose both runs of n words are among those given."""
    both = np.flatnonzero(np.diff(places) == 1)
    places = places[both]
    return hashes[both] * _NEXT + table.word_hash[places + n], places


def _grouped(hashes: Hashes, owner: NDArray[np.int32]) -> tuple[NDArray[np.intp], Offsets]:
    """An order that puts equal runs of a document together, in theirs; where each group begins."""
    order = np.argsort(hashes, kind="stable")
    ordered, owners = hashes[order], owner[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]) | (owners[1:] != owners[:-1])
    return order, np.flatnonzero(new)


def _covered(table: Table, weights: Offsets, places: Offsets, n: int) -> Offsets:
    """Weight, in each document, of the words that are in the runs of n words at `places`."""
    change = np.zeros(len(weights) + 1, dtype=np.int32)
    change[places] = 1
    change[places + n] -= 1
    inside = np.flatnonzero(np.cumsum(change[:-1]))
    total = np.append(0, np.cumsum(weights[inside]))
    bounds = np.searchsorted(inside, table.word_bounds)
    return np.asarray(np.diff(total[bounds]), dtype=np.int64)


def _heaviest_bucket(
    hashes: Hashes, owner: NDArray[np.int32], weights: Offsets, *, documents: int
) -> NDArray[np.float64]:
    """No run of a document has more weight than its heaviest bucket."""
    buckets = _BUCKETS
    while buckets > 1 and documents * buckets > 2 * len(hashes):
        buckets >>= 1
    bucket = (hashes * _SCATTER >> np.uint64(56)).astype(np.int64) & (buckets - 1)
    bucket += owner.astype(np.int64) * buckets
    heavy = np.bincount(bucket, weights=weights, minlength=documents * buckets)
    return np.asarray(heavy.reshape(documents, buckets).max(axis=1, initial=0))


def _shares_a_slot(hashes: Hashes, owner: NDArray[np.int32]) -> Mask:
    """False for runs that certainly occur once in their document."""
    keys = hashes + owner.astype(np.uint64) * _SCATTER
    slots = (keys * _NEXT >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
    counts = np.bincount(slots, minlength=1 << _SLOT_BITS)
    return np.asarray(counts[slots] > 1)
