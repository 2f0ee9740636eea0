"""Band keys: documents whose sets of shingles are alike share one with high probability.

Each document gets bands x rows minima, of which two documents agree in each with the probability
of their Jaccard similarity J; `rows` minima make a band key, so that a pair shares some key with
probability 1 - (1 - J^rows)^bands (Broder 1997; Leskovec, Rajaraman and Ullman, section 3.4).

The minima come from few passes over the shingles rather than bands x rows: each pass throws every
shingle into one slot and a slot keeps its least; slots still empty are filled by the next pass
(Dahlgaard, Knudsen and Thorup 2017, "Fast similarity sketching", arXiv 1704.04370, algorithm 1).
What `PASSES` leave empty is filled by a hash of the slot's own, as their second phase does. Unlike
densification, which copies from other slots, this keeps the minima of short documents as good as
those of independent permutations.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.dedup.shingles import mix, shingles_of
from meshwright.data.documents import bounds_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.dedup.shingles import Bounds, Hashes, Words
    from meshwright.data.settings import Dedup

NO_KEY = np.uint64(0)  # the keys of a document without words
PASSES = 16
_LOOKED_AFTER = (0, 1, 2, 4, 8, PASSES)  # passes after which is seen who has empty slots
_EMPTY = np.uint64(2**64 - 1)
_ODD = 0xD1B54A32D192ED03
_DOCUMENTS = 512  # sketched at once, so that their minima stay in the cache
_STRETCH = 1 << 15  # shingles thrown at once
_FILLED = 1 << 17  # comparisons made at once to fill empty slots
_REPEATED = 1 << 12  # comparisons from which a document's shingles are made distinct first


def band_keys(table: Words, settings: Dedup) -> Hashes:
    """The keys of each document and then its sketch: uint64 [documents, key_columns(settings)].

    The first `bands` columns are the keys, 0 for a document without words. The others hold the low
    byte of each minimum, its sketch (see `likely`). The array is in Fortran order, so that a column
    of it is read at one go.
    """
    hashes, bounds = shingles_of(table, settings.shingle_words)
    keys = np.zeros((len(bounds) - 1, key_columns(settings)), dtype=np.uint64, order="F")
    slots = settings.bands * settings.rows
    for start in range(0, len(keys), _DOCUMENTS):
        edges = bounds[start : start + _DOCUMENTS + 1]
        minima = sketch(hashes[edges[0] : edges[-1]], edges - edges[0], slots)
        rows = keys[start : start + len(minima)]
        rows[:, : settings.bands] = _banded(minima, bands=settings.bands)
        rows[:, settings.bands :] = _packed(minima)
    keys[np.diff(bounds) == 0] = NO_KEY
    return keys


def key_columns(settings: Dedup) -> int:
    """Columns of the array of `band_keys`."""
    return settings.bands + -(-settings.bands * settings.rows // 8)


def share_found(settings: Dedup) -> float:
    """Of pairs whose similarity is just the threshold, the share that gets a key in common."""
    return 1 - (1 - settings.threshold**settings.rows) ** settings.bands


def sketches_of(rows: Hashes, settings: Dedup) -> Hashes:
    """The sketches in rows of `band_keys`, eight places to a number: [numbers, documents]."""
    return np.ascontiguousarray(rows[:, settings.bands :].T)


def sketch(hashes: Hashes, bounds: Bounds, slots: int) -> Hashes:
    """The minima of each document's shingles, uint64 [documents, slots]; all ones without any."""
    minima = np.full((len(bounds) - 1, slots), _EMPTY, dtype=np.uint64)
    is_open = np.diff(bounds) > 0  # has empty slots
    some, held, edges = np.flatnonzero(is_open), *_of(is_open, hashes, bounds)
    for first, last in pairwise(_LOOKED_AFTER):
        for number in range(first, last):
            _throw(held, edges, number=number, minima=minima, rows=some)
        is_open = (minima[some] == _EMPTY).any(axis=1)
        some, held, edges = some[is_open], *_of(is_open, held, edges)
    for portion in _portions(edges, (minima[some] == _EMPTY).sum(axis=1)):
        chosen = np.zeros(len(some), dtype=np.bool_)
        chosen[portion] = True
        minima[some[portion]] = _filled(minima[some[portion]], *_of(chosen, held, edges))
    return minima


def _throw(
    hashes: Hashes, bounds: Bounds, *, number: int, minima: Hashes, rows: NDArray[np.int64]
) -> None:
    """One pass: every shingle into a slot of its document, whose minima are in a row of `minima`.

    A slot keeps the least hash of the first pass that reaches it: the number of the pass leads.
    """
    slots, flat, lead = minima.shape[1], minima.reshape(-1), np.uint64(number << 60)
    for start in range(0, len(hashes), _STRETCH):
        stop = min(start + _STRETCH, len(hashes))
        thrown = _rehashed(hashes[start:stop], number)
        place = thrown >> np.uint64(32)
        place *= np.uint64(slots)
        place >>= np.uint64(32)
        where = place.view(np.int64)
        where += _repeated(rows * slots, bounds, start=start, stop=stop)
        thrown >>= np.uint64(4)
        thrown |= lead
        np.minimum.at(flat, where, thrown)


def _repeated(
    values: NDArray[np.int64], bounds: Bounds, *, start: int, stop: int
) -> NDArray[np.int64]:
    """The value of the document of each shingle from `start` to `stop`."""
    first = int(np.searchsorted(bounds, start, side="right")) - 1
    last = int(np.searchsorted(bounds, stop, side="left"))
    edges: NDArray[np.int64] = np.clip(bounds[first : last + 1], start, stop)
    return np.repeat(values[first:last], edges[1:] - edges[:-1])


def _filled(minima: Hashes, hashes: Hashes, bounds: Bounds) -> Hashes:
    """Minima of documents, their empty slots filled by a hash of each slot's own."""
    document, slot = np.nonzero(minima == _EMPTY)
    held, edges = _distinct(hashes, bounds, np.bincount(document, minlength=len(minima)))
    counts = np.diff(edges)[document]
    ends = np.cumsum(counts)
    place = np.arange(ends[-1]) + np.repeat(edges[document] - (ends - counts), counts)
    factors = _multiplied((slot + PASSES).astype(np.uint64), 1) | np.uint64(1)
    thrown = held[place] * np.repeat(factors, counts)
    _finish(thrown)
    minima[document, slot] = np.minimum.reduceat(thrown, ends - counts)
    return minima


def _portions(bounds: Bounds, empty: NDArray[np.integer]) -> list[NDArray[np.int64]]:
    """Documents with so many empty slots, in parts for which `_filled` compares little at once."""
    if not len(empty):
        return []
    work = np.cumsum(np.minimum(np.diff(bounds) * empty, _REPEATED * 8))
    return np.split(np.arange(len(empty)), np.flatnonzero(np.diff(work // _FILLED)) + 1)


def _distinct(hashes: Hashes, bounds: Bounds, empty: NDArray[np.integer]) -> tuple[Hashes, Bounds]:
    """Without the repeated shingles of documents that would cost too many comparisons."""
    counts = np.diff(bounds)
    heavy = counts * empty > _REPEATED
    if not heavy.any():
        return hashes, bounds
    parts = [hashes[a:b] for a, b in pairwise(bounds.tolist())]
    parts = [np.unique(part) if many else part for part, many in zip(parts, heavy, strict=True)]
    return np.concatenate(parts), bounds_of(np.array([len(part) for part in parts]))


def _of(chosen: NDArray[np.bool_], hashes: Hashes, bounds: Bounds) -> tuple[Hashes, Bounds]:
    """The shingles of the documents that `chosen` marks."""
    if chosen.all():
        return hashes, bounds
    counts = np.diff(bounds)
    return hashes[np.repeat(chosen, counts)], bounds_of(counts[chosen])


def _banded(minima: Hashes, *, bands: int) -> Hashes:
    """The rows of each band as one key, never 0, different for the same rows in another band."""
    rows = minima.reshape(len(minima), bands, -1)
    keys = np.tile(_multiplied(np.arange(1, bands + 1, dtype=np.uint64), 2), (len(minima), 1))
    for row in range(rows.shape[2]):
        keys *= np.uint64(_ODD)
        keys += rows[:, :, row]
    mix(keys)
    keys[keys == NO_KEY] = np.uint64(1)
    return keys


def _packed(minima: Hashes) -> Hashes:
    """The low byte of every minimum, eight to a number."""
    low = np.zeros((len(minima), -(-minima.shape[1] // 8) * 8), dtype=np.uint8)
    low[:, : minima.shape[1]] = minima & np.uint64(0xFF)
    return low.view(np.uint64)


def _rehashed(hashes: Hashes, number: int) -> Hashes:
    """Another hash of every shingle, independent of those by other numbers; by 0 its own."""
    if not number:
        return hashes.copy()
    factor = _multiplied(np.array([number], dtype=np.uint64), 1) | np.uint64(1)
    thrown: Hashes = hashes * factor
    _finish(thrown)
    return thrown


def _finish(thrown: Hashes) -> None:
    thrown ^= thrown >> np.uint64(32)
    thrown *= np.uint64(0xBF58476D1CE4E5B9)
    thrown ^= thrown >> np.uint64(29)


def _multiplied(numbers: Hashes, stream: int) -> Hashes:
    """Small numbers as well-spread ones, those of one stream unlike those of another."""
    spread: Hashes = (numbers + np.uint64(stream << 32)) * np.uint64(_ODD)
    mix(spread)
    return spread
