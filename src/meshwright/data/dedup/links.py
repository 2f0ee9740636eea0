"""Documents with equal keys: buckets of them, the components they form, groups of components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.dedup.shingles import mix
from meshwright.data.documents import bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Keys = NDArray[np.uint64]
    Portions = Callable[[], Iterable[tuple[Numbers, Keys]]]

_SORTED_BYTES = 48  # for a row that is sorted: its key, its document, their order and copies


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sets of at least two documents, each ascending: members[bounds[i]:bounds[i + 1]]."""

    members: Numbers
    bounds: Numbers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def sizes(self) -> Numbers:
        """Documents in each."""
        return np.diff(self.bounds)

    def take(self, chosen: NDArray[np.bool_]) -> Buckets:
        """The buckets that `chosen` marks."""
        sizes = self.sizes
        return Buckets(self.members[np.repeat(chosen, sizes)], bounds_of(sizes[chosen]))


def equal_rows(keys: Keys, documents: Numbers) -> Buckets:
    """The documents whose rows of `keys` [n, width] are equal, for each row that occurs twice."""
    first = np.ascontiguousarray(keys[:, 0])
    order = np.argsort(first)
    ordered = first[order]
    twin = np.zeros(len(order) + 1, dtype=bool)
    twin[1:-1] = ordered[1:] == ordered[:-1]
    chosen = order[twin[1:] | twin[:-1]]
    keys, documents = keys[chosen], documents[chosen]
    order = np.lexsort((documents, *keys.T[::-1]))
    keys, documents = keys[order], documents[order]
    starts = np.ones(len(order) + 1, dtype=bool)
    starts[1:-1] = (keys[1:] != keys[:-1]).any(axis=1)
    buckets = Buckets(documents, np.flatnonzero(starts) if len(order) else np.zeros(1, np.int64))
    return buckets.take(buckets.sizes > 1)


def buckets_of(portions: Portions, *, rows: int, memory_bytes: int) -> Iterator[Buckets]:
    """The buckets of equal rows of keys, sorting about `memory_bytes` of them at a time.

    `portions()` goes through all `rows` in parts: the documents, and their keys [n, width]. Where
    they do not fit, one stretch of the range of keys is sorted after the other, and the portions
    are gone through once for each.
    """
    parts = max(1, -(-rows * _SORTED_BYTES // memory_bytes))
    for part in range(parts):
        documents, keys = [np.zeros(0, np.int64)], []
        for some, theirs in portions():
            here = _in_part(theirs[:, 0], part=part, parts=parts)
            documents.append(some[here])
            keys.append(np.array(theirs[here]))  # a view would keep its file open
        if keys:
            yield equal_rows(np.concatenate(keys), np.concatenate(documents))


def columns_at_once(*, documents: int, columns: int, memory_bytes: int) -> int:
    """How many columns of keys of so many documents can be sorted together; at least one."""
    return min(columns, max(1, memory_bytes // max(1, documents * _SORTED_BYTES)))


def _in_part(keys: Keys, *, part: int, parts: int) -> NDArray[np.bool_] | slice:
    """Which keys lie in one of so many equal stretches of their range."""
    if parts == 1:
        return slice(None)
    found: NDArray[np.bool_] = (keys >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32) == part
    return found


def distinct(parts: Iterable[Buckets]) -> Buckets:
    """Each set of documents once, however often it occurs; the order is that of the sets."""
    seen, kept = np.zeros(0, np.uint64), [Buckets(np.zeros(0, np.int64), np.zeros(1, np.int64))]
    for buckets in parts:
        marks = _fingerprints(buckets)
        marks, places = np.unique(marks, return_index=True)
        places = places[~np.isin(marks, seen)]
        seen = np.union1d(seen, marks)
        chosen = np.zeros(len(buckets), dtype=bool)
        chosen[places] = True
        kept.append(buckets.take(chosen))
    together = Buckets(
        np.concatenate([one.members for one in kept]),
        bounds_of(np.concatenate([one.sizes for one in kept])),
    )
    return reordered(together, np.lexsort((_fingerprints(together), _firsts(together))))


def reordered(buckets: Buckets, order: Numbers) -> Buckets:
    """The same buckets in another order."""
    sizes = buckets.sizes[order]
    bounds = bounds_of(sizes)
    place = np.arange(bounds[-1]) + np.repeat(buckets.bounds[:-1][order] - bounds[:-1], sizes)
    return Buckets(buckets.members[place], bounds)


def pairs_in(buckets: Buckets, *, largest: int) -> tuple[Numbers, Buckets]:
    """All pairs within buckets of at most `largest`, each once [n, 2]; and the larger buckets."""
    small = buckets.sizes <= largest
    found = [np.zeros((0, 2), dtype=np.int64)]
    for size in np.unique(buckets.sizes[small]).tolist():
        rows = buckets.take(buckets.sizes == size).members.reshape(-1, size)
        one, other = np.triu_indices(size, 1)
        found.append(np.stack((rows[:, one].ravel(), rows[:, other].ravel()), axis=1))
    pairs = np.concatenate(found)
    codes = np.unique(pairs[:, 0] << 32 | pairs[:, 1])
    return np.stack((codes >> 32, codes & 0xFFFFFFFF), axis=1), buckets.take(~small)


def joined(pairs: Numbers, buckets: Buckets) -> Buckets:
    """Pairs as buckets, and then the others."""
    sizes = np.concatenate((np.full(len(pairs), 2, dtype=np.int64), buckets.sizes))
    return Buckets(np.concatenate((pairs.ravel(), buckets.members)), bounds_of(sizes))


def components(buckets: Buckets, documents: int) -> Numbers:
    """The least document that each of `documents` is linked with through any buckets.

    Roots are hooked to the least root that they share a bucket with, then paths are halved, until
    nothing changes (Shiloach and Vishkin 1982).
    """
    labels = np.arange(documents)
    firsts = np.repeat(_firsts(buckets), buckets.sizes)
    while True:
        one, other = labels[firsts], labels[buckets.members]
        apart = one != other
        if not apart.any():
            return labels
        one, other = one[apart], other[apart]
        np.minimum.at(labels, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(labels, higher := labels[labels]):
            labels = higher


def groups_of(labels: Numbers, sizes: NDArray[np.integer], *, target: int) -> Numbers:
    """A group for each document, from 0: components in order, until their sizes reach `target`."""
    roots, component = np.unique(labels, return_inverse=True)
    weights = np.zeros(len(roots), dtype=np.int64)
    np.add.at(weights, component, sizes)
    before = np.cumsum(weights) - weights
    group: Numbers = np.unique(before // target, return_inverse=True)[1]
    return group[component]


def _firsts(buckets: Buckets) -> Numbers:
    return buckets.members[buckets.bounds[:-1]]


def _fingerprints(buckets: Buckets) -> Keys:
    """A 64-bit hash of each bucket's members."""
    if not len(buckets):
        return np.zeros(0, np.uint64)
    marks = buckets.members.astype(np.uint64) + np.uint64(1)
    mix(marks)
    marks = np.add.reduceat(marks, buckets.bounds[:-1])
    mix(marks)
    return marks
