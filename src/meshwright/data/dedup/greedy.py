"""Which of linked documents go: each that repeats an earlier one that stays."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from meshwright.data.dedup.likely import differing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.dedup.likely import Sketches
    from meshwright.data.dedup.links import Buckets, Numbers
    from meshwright.data.dedup.shingles import Hashes

_FEW = 3  # comparisons that are not worth the outlines
_OUTLINE_BITS = 12  # of a shingle's hash, which say the place of its bit


class Sets(Protocol):
    """The sets of shingles of some documents."""

    @property
    def sketches(self) -> Sketches:
        """What tells unlike documents apart, [documents, words]."""

    def shingles(self, document: int) -> Hashes:
        """The distinct shingles of a document, sorted."""


class Repeat(NamedTuple):
    """A document that goes, the kept one that it repeats, and their Jaccard similarity."""

    document: int
    of: int
    similarity: float


def repeats(
    buckets: Buckets, sets: Sets, *, threshold: float, most_differing: int
) -> Iterator[Repeat]:
    """The documents that go, in order.

    A document goes iff its similarity with an earlier kept document of one of its buckets is at
    least `threshold`. They are tried by how few places their sketches differ in, then by age; where
    there are several, those are passed over that differ in more than `most_differing`. Only kept
    ones are compared with, so a thousand copies of one text cost a thousand comparisons.
    """
    kept: dict[int, array[int]] = {}
    comparing = _Comparing(sets, threshold)
    for document, mine in _memberships(buckets):
        earlier = [kept[bucket] for bucket in mine if bucket in kept]
        found = None
        if earlier:
            alike = _alike(document, earlier, sets=sets, most=most_differing)
            found = comparing.first_like(document, alike)
        if found is not None:
            yield found
            continue
        for bucket in mine:
            kept.setdefault(bucket, array("q")).append(document)


def jaccard(one: Hashes, other: Hashes) -> float:
    """Shared over all elements of two sorted arrays of distinct elements; 0 for two empty ones."""
    both = np.concatenate((one, other))
    both.sort(kind="stable")
    shared = int(np.count_nonzero(both[1:] == both[:-1]))
    return shared / max(1, len(both) - shared)


def _memberships(buckets: Buckets) -> Iterator[tuple[int, list[int]]]:
    """Every document in order, with the buckets it is in."""
    order = np.argsort(buckets.members, kind="stable")
    documents, starts = np.unique(buckets.members[order], return_index=True)
    owners = np.repeat(np.arange(len(buckets)), buckets.sizes)[order].tolist()
    edges = [*starts.tolist(), len(owners)]
    for place, document in enumerate(documents.tolist()):
        yield document, owners[edges[place] : edges[place + 1]]


def _alike(document: int, earlier: list[array[int]], *, sets: Sets, most: int) -> Numbers:
    """Those of `earlier` whose sketches are like the document's, each once, the likest first."""
    numbers: Numbers = np.concatenate([np.frombuffer(some, dtype=np.int64) for some in earlier])
    numbers.sort()
    numbers = numbers[np.append(True, numbers[1:] != numbers[:-1])]
    if len(numbers) == 1:  # to compare them costs less
        return numbers
    places = differing((sets.sketches.take(numbers, axis=0) ^ sets.sketches[document]).T)
    close = places <= most
    found: Numbers = numbers[close][np.argsort(places[close], kind="stable")]
    return found


class _Comparing:
    """Comparisons of sets, most of those that would fail saved by outlines.

    An outline has a bit for each value of the leading bits of a shingle's hash, set where the set
    has such a shingle. Each bit that one outline has and the other lacks stands for at least one
    shingle that is not shared, which bounds the similarity from above.
    """

    def __init__(self, sets: Sets, threshold: float) -> None:
        count = len(sets.sketches)
        self.sets = sets
        self.threshold = threshold
        self._sizes = np.full(count, -1, dtype=np.int64)  # of those that have an outline
        self._outlines = np.zeros((count, (1 << _OUTLINE_BITS) // 64), dtype=np.uint64)

    def first_like(self, document: int, tried: Numbers) -> Repeat | None:
        """The first of those tried that is similar enough."""
        own = self.sets.shingles(document)
        possible = tried if len(tried) <= _FEW else self._possible(document, tried)
        for other in possible.tolist():
            similarity = jaccard(own, self.sets.shingles(other))
            if similarity >= self.threshold:
                return Repeat(document, other, similarity)
        return None

    def _possible(self, document: int, tried: Numbers) -> Numbers:
        """Those tried that may be similar enough."""
        self._draw([document])
        self._draw(tried[self._sizes[tried] < 0].tolist())
        outline, outlines = self._outlines[document], self._outlines.take(tried, axis=0)
        crossed = outlines ^ outline
        own = np.bitwise_count(crossed & outline).sum(axis=1, dtype=np.int64)
        theirs = np.bitwise_count(crossed & outlines).sum(axis=1, dtype=np.int64)
        size, sizes = self._sizes[document], self._sizes[tried]
        shared = np.minimum(size - own, sizes - theirs)
        possible = shared >= self.threshold * (size + sizes - shared) * (1 - 1e-9)
        found: Numbers = tried[possible]
        return found

    def _draw(self, documents: list[int]) -> None:
        """Makes the outlines of some documents."""
        for document in documents:
            shingles = self.sets.shingles(document)
            bits = np.zeros(1 << _OUTLINE_BITS, dtype=np.bool_)
            bits[shingles >> np.uint64(64 - _OUTLINE_BITS)] = True
            self._outlines[document] = np.packbits(bits).view(np.uint64)
            self._sizes[document] = len(shingles)
