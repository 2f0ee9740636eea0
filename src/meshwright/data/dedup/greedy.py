"""Which of linked documents go: each that repeats an earlier one that stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.data.dedup.links import Buckets
    from meshwright.data.dedup.shingles import Hashes


class Repeat(NamedTuple):
    """A document that goes, the kept one that it repeats, and their Jaccard similarity."""

    document: int
    of: int
    similarity: float


def repeats(
    buckets: Buckets,
    sizes: NDArray[np.integer],
    *,
    shingles: Callable[[int], Hashes],
    threshold: float,
) -> Iterator[Repeat]:
    """The documents that go, in order.

    Document i, of sizes[i] distinct shingles `shingles(i)` (sorted), goes iff its similarity with
    an earlier kept document of one of its buckets is at least `threshold`; the earliest counts.
    Only kept ones are compared with, so a thousand copies of one text cost a thousand comparisons.
    """
    kept: dict[int, list[int]] = {}
    for document, mine in _memberships(buckets):
        earlier = sorted({one for bucket in mine for one in kept.get(bucket, ())})
        found = _first_like(document, earlier, sizes, shingles=shingles, threshold=threshold)
        if found is not None:
            yield found
            continue
        for bucket in mine:
            kept.setdefault(bucket, []).append(document)


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


def _first_like(
    document: int,
    earlier: Sequence[int],
    sizes: NDArray[np.integer],
    *,
    shingles: Callable[[int], Hashes],
    threshold: float,
) -> Repeat | None:
    """The first of `earlier` that is similar enough; sizes too unlike are passed over."""
    if not earlier:
        return None
    own, size = shingles(document), int(sizes[document])
    for other in earlier:
        least, most = sorted((size, int(sizes[other])))
        if least < threshold * most * (1 - 1e-9):  # J is at most least / most
            continue
        similarity = jaccard(own, shingles(other))
        if similarity >= threshold:
            return Repeat(document, other, similarity)
    return None
