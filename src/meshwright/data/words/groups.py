"""Equal hashes within a document, found together for a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Mask, Offsets

    Hashes = NDArray[np.uint64]
    Numbers = NDArray[np.int32]

_SCATTER = np.uint64(0x9E3779B97F4A7C15)
_SLOT_BITS = 20
_ROUNDS = (np.uint64(0x9FB21C651E98DF25), np.uint64(0xD6E8FEB86659FD93))


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Elements with the same hash and document. `order` puts each group together."""

    order: Offsets
    begins: Offsets  # where each group begins in that order

    @staticmethod
    def of(hashes: Hashes, document: Numbers) -> Groups:
        """The groups; `document` says whose each element is."""
        keys = _keys(hashes, document)
        order = np.argsort(keys)
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = np.diff(keys[order]) != 0
        owner = document[order]
        if (np.diff(owner, prepend=0) != 0)[~new].any():  # keys that collide over documents
            order = np.lexsort((hashes, document))
            new[1:] = (np.diff(hashes[order]) != 0) | (np.diff(document[order]) != 0)
        return Groups(order=order, begins=np.flatnonzero(new))

    @property
    def counts(self) -> Offsets:
        """Elements of each group."""
        return np.diff(self.begins, append=len(self.order))

    @property
    def first(self) -> Offsets:
        """The first element of each group."""
        if not len(self.order):
            return self.order
        return np.asarray(np.minimum.reduceat(self.order, self.begins))

    @property
    def is_shared(self) -> Mask:
        """Which elements are not alone in their group."""
        shared = np.zeros(len(self.order), dtype=np.bool_)
        shared[self.order] = np.repeat(self.counts > 1, self.counts)
        return shared

    @property
    def is_later(self) -> Mask:
        """Which elements have an equal one before them."""
        later = np.ones(len(self.order), dtype=np.bool_)
        later[self.first] = False
        return later


def _keys(hashes: Hashes, document: Numbers) -> Hashes:
    return hashes + document.astype(np.uint64) * _SCATTER


def maybe_shared(hashes: Hashes, document: Numbers) -> Offsets:
    """Elements that may not be alone in their group: all those that are not, and few others.

    Every element leaves its number in a slot of a table by its hash. One that finds another number
    there may be shared, and so may the one whose number it finds; twice, with other slots.
    """
    keys = _keys(hashes, document)
    left = _disputed(keys, _ROUNDS[0])
    return left[_disputed(keys[left], _ROUNDS[1])]


def _disputed(keys: Hashes, factor: np.uint64) -> Offsets:
    """Elements that are not alone in their slot."""
    numbers = np.arange(len(keys), dtype=np.int32)
    slots = keys * factor
    slots >>= np.uint64(64 - _SLOT_BITS)
    places = slots.view(np.int64)
    table = np.empty(1 << _SLOT_BITS, dtype=np.int32)
    table[places] = numbers
    found = table.take(places)
    disputed = found != numbers
    disputed[found[disputed]] = True
    return np.flatnonzero(disputed)
