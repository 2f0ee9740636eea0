"""The part of the score matrix that attention looks at, cut into rectangles.

Queries and keys are runs of places. A tile is a rectangle of which at least one score is visible:
FULL where all are, CAUSAL where it is a square on the diagonal with all of its lower triangle, BAND
where a mask has to say. Kernels that know no masks serve the first two.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.train.attention.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

Pieces = tuple[tuple[int, ...], ...]  # for every row where its documents begin, and its length
LEAST_CHUNK = 256  # queries of a tile under a sliding window; narrower ones leave kernels idle


class Kind(IntEnum):
    """What of a tile is visible."""

    FULL = 0
    CAUSAL = 1
    BAND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Queries q_begin up to q_end against keys k_begin up to k_end, of one row or of all (None).

    `offset` is the place of the first query less that of the first key. `alone` says that no other
    tile of the same work has any of these queries.
    """

    row: int | None
    q_begin: int
    q_end: int
    k_begin: int
    k_end: int
    offset: int
    kind: Kind
    alone: bool = False


@lru_cache(maxsize=64)  # every layer of every pass asks the same
def tiles_of(
    queries: tuple[Run, ...],
    keys: tuple[Run, ...],
    *,
    window: int | None = None,
    pieces: Pieces | None = None,
) -> tuple[Tile, ...]:
    """Tiles that hold every visible score once: key <= query < key + window, in one document.

    The runs are those of the tokens as they lie. Without `pieces` every row is one document.
    """
    rows: list[list[Tile]] = []
    if pieces is None:
        whole = (Run(0, max(run.stop for run in queries + keys)),)
        rows.append(list(_row_tiles(None, whole, queries, keys, window)))
    for row, starts in enumerate(pieces or ()):
        documents = tuple(Run(start, stop) for start, stop in pairwise(starts) if stop > start)
        rows.append(list(_row_tiles(row, documents, queries, keys, window)))
    return tuple(tile for tiles in rows for tile in _told_alone(tiles))


def _told_alone(tiles: list[Tile]) -> Iterator[Tile]:
    """The tiles of one row, those marked whose queries no other has."""
    reached: list[int] = []  # where the queries end of all tiles up to this one
    ordered = sorted(tiles, key=lambda tile: (tile.q_begin, tile.q_end))
    for tile in ordered:
        reached.append(max(tile.q_end, reached[-1] if reached else 0))
    for i, tile in enumerate(ordered):
        before = reached[i - 1] if i else 0
        after = ordered[i + 1].q_begin if i + 1 < len(ordered) else tile.q_end
        yield replace(tile, alone=before <= tile.q_begin and tile.q_end <= after)


def _row_tiles(
    row: int | None,
    documents: tuple[Run, ...],
    queries: tuple[Run, ...],
    keys: tuple[Run, ...],
    window: int | None,
) -> Iterator[Tile]:
    """Tiles of one row."""
    for q_at, query in _placed(queries):
        for k_at, key in _placed(keys):
            if key.start >= query.stop:
                continue
            for document in documents:
                inside, seen = _common(query, document), _common(key, document)
                if not inside or not seen:
                    continue
                for a, b in _pairs(inside, seen, window):
                    yield Tile(
                        row=row,
                        q_begin=q_at + a.start - query.start,
                        q_end=q_at + a.stop - query.start,
                        k_begin=k_at + b.start - key.start,
                        k_end=k_at + b.stop - key.start,
                        offset=a.start - b.start,
                        kind=_kind(a, b, window),
                    )


def _placed(runs: tuple[Run, ...]) -> Iterator[tuple[int, Run]]:
    """Every run with the index of its first token."""
    begin = 0
    for run in runs:
        yield begin, run
        begin += len(run)


def _common(one: Run, other: Run) -> Run | None:
    """Places in both."""
    start, stop = max(one.start, other.start), min(one.stop, other.stop)
    return Run(start, stop) if start < stop else None


def _pairs(query: Run, key: Run, window: int | None) -> Iterator[tuple[Run, Run]]:
    """Runs of queries and keys whose rectangle is a tile."""
    if window is None:
        yield from _triangles(query, key)
        return
    chunk = max(window, LEAST_CHUNK)
    for start in range(query.start, query.stop, chunk):
        some = Run(start, min(start + chunk, query.stop))
        seen = _common(key, Run(some.start - window + 1, some.stop))
        if seen:
            yield some, seen


def _triangles(query: Run, key: Run) -> Iterator[tuple[Run, Run]]:
    """Rectangles that are full, and squares on the diagonal."""
    before = _common(key, Run(key.start, query.start))
    if before:  # keys older than every query
        yield query, before
    key_left = _common(key, Run(query.start, query.stop))
    if not key_left:
        return
    query_left = Run(key_left.start, query.stop)
    if query_left.stop > key_left.stop:  # queries later than every key
        yield Run(key_left.stop, query_left.stop), key_left
    yield key_left, key_left


def _kind(query: Run, key: Run, window: int | None) -> Kind:
    """What of the rectangle is visible."""
    near = window is None or query.stop - 1 - key.start < window
    if near and key.stop - 1 <= query.start and query != key:
        return Kind.FULL
    return Kind.CAUSAL if near and query == key else Kind.BAND
