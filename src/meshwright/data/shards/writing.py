"""Writes one shard: tokens, index and pack plan, from wherever its documents' tokens lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.pack.rows import columns, places_in_row
from meshwright.data.pack.strategy import fills, layout_of, pack
from meshwright.data.shards.hashed import Written, write_column
from meshwright.data.shards.indexed import writing
from meshwright.data.shuffle import shuffled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.data.pack.rows import Column, Rows
    from meshwright.data.pack.strategy import Fill
    from meshwright.data.settings import Pack

BLOCK_TOKENS = 16 << 20  # gathered and written at once: 32 or 64 MiB


class Tokens(Protocol):
    """The tokens of a shard's documents, in whatever order they lie."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each document [documents]."""

    def fill(
        self, out: NDArray[Any], places: Column, pieces: tuple[Column, Column, Column]
    ) -> None:
        """Puts pieces (document, offset, length) into `out`, each from its place on."""

    def at(self, documents: Column, offsets: Column) -> NDArray[Any]:
        """One token of each of these documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What all shards of a build have in common."""

    pack: Pack
    seed: int
    dtype: np.dtype[Any]
    pad_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What was written: files by name, and counts for the manifest."""

    files: Mapping[str, Written]
    documents: int
    tokens: int
    rows: int
    pieces: int
    cost: int
    largest_cost: int
    fills: Mapping[str, Fill]  # by strategy


def write_shard(prefix: Path, tokens: Tokens, *, form: Form, number: int) -> Shard:
    """The files of one shard; `number` is unique in the build and decides the order of its rows.

    Holds about 100 bytes of memory a document, and BLOCK_TOKENS tokens.
    """
    lengths = tokens.lengths
    made = pack(lengths, form.pack.seq_len, strategy=form.pack.strategy)
    rows = made.take(shuffled(len(made), seed=form.seed, purpose="rows", number=number))
    layout = layout_of(form.pack.strategy, form.pack.layout)
    blocks = _rows(tokens, rows, form=form) if layout == "rows" else _documents(tokens, form=form)
    with writing(prefix, form.dtype) as (writer, files):
        for block, sizes in blocks:
            writer.append(block, sizes)
    row, piece = columns(rows, layout=layout, next_tokens=_next_tokens(tokens, rows))
    for end, values in ((".rows.npy", row), (".pieces.npy", piece)):
        path = prefix.with_name(prefix.name + end)
        files[path.name] = write_column(path, values)
    return Shard(
        files=files,
        documents=len(lengths),
        tokens=int(lengths.sum(dtype=np.int64)),
        rows=len(row),
        pieces=len(piece),
        cost=int(row["cost"].sum()),
        largest_cost=int(row["cost"].max(initial=0)),
        fills=fills(lengths, form.pack.seq_len, made={form.pack.strategy: made}),
    )


def _documents(tokens: Tokens, *, form: Form) -> Iterator[tuple[NDArray[Any], Column]]:
    """Every document as a sequence, in blocks."""
    lengths = tokens.lengths.astype(np.int64)
    bounds = bounds_of(lengths)
    for first, last in _blocks(bounds):
        block = np.empty(bounds[last] - bounds[first], dtype=form.dtype)
        documents = np.arange(first, last)
        whole = (documents, np.zeros(last - first, dtype=np.int64), lengths[first:last])
        tokens.fill(block, bounds[first:last] - bounds[first], whole)
        yield block, lengths[first:last]


def _rows(tokens: Tokens, rows: Rows, *, form: Form) -> Iterator[tuple[NDArray[Any], Column]]:
    """Every row as a sequence of `seq_len` tokens, in blocks."""
    seq_len, counts = rows.seq_len, np.diff(rows.bounds)
    place = np.repeat(np.arange(len(rows)) * seq_len, counts) + places_in_row(rows)
    for first, last in _blocks(np.arange(len(rows) + 1) * seq_len):
        block = np.full((last - first) * seq_len, form.pad_id, dtype=form.dtype)
        part = slice(rows.bounds[first], rows.bounds[last])
        pieces = (rows.document[part], rows.offset[part], rows.length[part])
        tokens.fill(block, place[part] - first * seq_len, pieces)
        yield block, np.full(last - first, seq_len, dtype=np.int64)


def _blocks(bounds: Column) -> Iterator[tuple[int, int]]:
    """Runs of sequences with BLOCK_TOKENS tokens each, or a single longer one."""
    first, count = 0, len(bounds) - 1
    while first < count:
        fitting = int(np.searchsorted(bounds, bounds[first] + BLOCK_TOKENS, side="right")) - 1
        last = max(fitting, first + 1)
        yield first, last
        first = last


def _next_tokens(tokens: Tokens, rows: Rows) -> Column:
    """The token behind each piece in its document, -1 at the end of the document."""
    ends = rows.offset + rows.length
    following = np.full(len(ends), -1, dtype=np.int64)
    goes_on = np.flatnonzero(ends < tokens.lengths[rows.document])
    following[goes_on] = tokens.at(rows.document[goes_on], ends[goes_on])
    return following


@dataclass(frozen=True, slots=True)
class TokensInMemory:
    """Documents end to end in one array."""

    tokens: NDArray[Any]
    lengths: NDArray[np.int32]

    def fill(
        self, out: NDArray[Any], places: Column, pieces: tuple[Column, Column, Column]
    ) -> None:
        """Copies the pieces, one by one."""
        starts = bounds_of(self.lengths)[pieces[0]] + pieces[1]
        copy_pieces(out, self.tokens, places=places, starts=starts, lengths=pieces[2])

    def at(self, documents: Column, offsets: Column) -> NDArray[Any]:
        """One token of each."""
        found: NDArray[Any] = self.tokens[bounds_of(self.lengths)[documents] + offsets]
        return found


def copy_pieces(
    out: NDArray[Any], tokens: NDArray[Any], *, places: Column, starts: Column, lengths: Column
) -> None:
    """Copies stretches of `tokens`, each to its place."""
    for place, start, length in zip(
        places.tolist(), starts.tolist(), lengths.tolist(), strict=True
    ):
        out[place : place + length] = tokens[start : start + length]
