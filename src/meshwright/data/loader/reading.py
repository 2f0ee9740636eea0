"""Reads rows: from files mapped into memory to the arrays of a step."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.loader.batch import IGNORED, PADDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.data.shards.folder import Folder, Shard

    Numbers = NDArray[np.int64]
    Run = tuple[int, int, int, int]  # shard, place among all tokens, first token in shard, length

OPEN_SHARDS = 128  # of all folders; each takes 4 of the 1,024 files that a process may often open


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Pieces of documents in rows, padding included: together they fill every row.

    `source` is the token of `shard` at which a piece begins; padding has shard -1.
    """

    row: Numbers  # place of its row among those that were asked for
    length: Numbers
    next: Numbers
    document: Numbers  # its number in the row, PADDING for padding
    shard: Numbers
    source: Numbers

    def take(self, chosen: NDArray[Any]) -> Pieces:
        """Some of them, in the order of `chosen`."""
        return Pieces(**{name: getattr(self, name)[chosen] for name in self.__slots__})


class Reader:
    """Rows of several folders, numbered through all of them."""

    def __init__(self, folders: Sequence[Folder]) -> None:
        self.folders = tuple(folders)
        for folder in folders:
            folder.open_shards = min(folder.open_shards, max(2, OPEN_SHARDS // len(folders)))
        self.seq_len = folders[0].seq_len
        self.pad_id = folders[0].vocabulary.pad_id
        self._places = [(folder, i) for folder in folders for i in range(len(folder.records))]
        rows = [record.rows for folder in folders for record in folder.records]
        self._bounds = bounds_of(np.array(rows, dtype=np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        return Reader, (self.folders,)

    def shard(self, number: int) -> Shard:
        """A shard, numbered through the folders; InvalidInput when it is damaged."""
        folder, inside = self._places[number]
        return folder.shard(inside)

    def costs(self, rows: Numbers) -> Numbers:
        """Sum of squared piece lengths of each row [rows], padding counted as a piece."""
        costs = np.full(len(rows), self.seq_len**2, dtype=np.int64)
        for number, chosen, local in self._by_shard(rows):
            found = self.shard(number).plan.rows[local]
            padding = self.seq_len - found["tokens"].astype(np.int64)
            costs[chosen] = found["cost"] + padding * padding
        return costs

    def pieces(self, rows: Numbers) -> Pieces:
        """The pieces of rows, row after row; a row -1 is padding alone."""
        parts = [
            _pieces(self.shard(number), local, rows=chosen, shard_number=number)
            for number, chosen, local in self._by_shard(rows)
        ]
        used = np.zeros(len(rows), dtype=np.int64)
        for part in parts:
            np.add.at(used, part.row, part.length)
        parts.append(_padding(self.seq_len - used))
        joined = Pieces(
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in Pieces.__slots__
            }
        )
        return joined.take(np.argsort(joined.row, kind="stable"))

    def fill_tokens(self, out: NDArray[Any], pieces: Pieces) -> None:
        """The tokens of rows [rows, seq_len], from all of their pieces."""
        runs = list(_runs(pieces))
        self._advise(runs)
        flat = out.ravel()
        for number, place, start, length in runs:
            if number < 0:
                flat[place : place + length] = self.pad_id
            else:
                ids = self.shard(number).indexed.tokens.view(np.ndarray)  # quicker to slice
                flat[place : place + length] = ids[start : start + length]

    def _advise(self, runs: Sequence[Run]) -> None:
        """Asks the system to read these stretches now, all at once, where it can be asked."""
        if not hasattr(os, "posix_fadvise"):
            return
        for number, stretches in _of_shards(runs).items():
            shard = self.shard(number)
            size = shard.indexed.tokens.itemsize
            path = self._places[number][0].path / f"{shard.record.name}.bin"
            with contextlib.suppress(OSError), path.open("rb") as file:
                for start, length in stretches:
                    os.posix_fadvise(
                        file.fileno(), start * size, length * size, os.POSIX_FADV_WILLNEED
                    )

    def _by_shard(self, rows: Numbers) -> Iterator[tuple[int, Numbers, Numbers]]:
        """For each shard: its number, which of the rows lie in it, their numbers within it."""
        shards = np.searchsorted(self._bounds, rows, side="right") - 1
        for number in sorted(set(shards.tolist())):
            if number >= 0:
                chosen = np.flatnonzero(shards == number)
                yield number, chosen, rows[chosen] - self._bounds[number]


def fill_labels(out: NDArray[Any], tokens: NDArray[Any], pieces: Pieces) -> None:
    """The token that follows each in its document [rows, seq_len]; IGNORED where none does."""
    labels = out.ravel()
    labels[:-1] = tokens.ravel()[1:]
    ends = np.cumsum(pieces.length)
    labels[ends - 1] = np.where(pieces.next < 0, IGNORED, pieces.next)
    for piece in np.flatnonzero(pieces.document == PADDING).tolist():
        labels[ends[piece] - pieces.length[piece] : ends[piece]] = IGNORED


def fill_positions(out: NDArray[Any], pieces: Pieces) -> None:
    """Places of tokens in their pieces, from 0 [rows, seq_len]."""
    steps = out.ravel()
    steps.fill(1)
    steps[0] = 0
    steps[np.cumsum(pieces.length)[:-1]] = 1 - pieces.length[:-1]
    np.cumsum(steps, out=steps)


def fill_documents(out: NDArray[np.int32], pieces: Pieces) -> None:
    """Numbers of the documents in their rows, from 0; PADDING in padding [rows, seq_len]."""
    steps = out.ravel()
    steps.fill(0)
    steps[0] = pieces.document[0]
    steps[np.cumsum(pieces.length)[:-1]] = np.diff(pieces.document)
    np.cumsum(steps, out=steps)


def _pieces(shard: Shard, local: Numbers, *, rows: Numbers, shard_number: int) -> Pieces:
    """The pieces of rows of one shard; `rows` says what each row is called."""
    found = shard.plan.rows[local]
    counts = found["pieces"].astype(np.int64)
    firsts = bounds_of(counts)
    document = np.arange(firsts[-1]) - np.repeat(firsts[:-1], counts)
    pieces = shard.plan.pieces[np.repeat(found["first"], counts) + document]
    offsets = shard.indexed.offsets[pieces["sequence"]] // shard.indexed.tokens.itemsize
    return Pieces(
        row=np.repeat(rows, counts),
        length=pieces["length"].astype(np.int64),
        next=pieces["next"].astype(np.int64),
        document=document,
        shard=np.full(len(pieces), shard_number, dtype=np.int64),
        source=offsets + pieces["start"],
    )


def _padding(free: Numbers) -> Pieces:
    """A piece of padding for each row that has room left."""
    row = np.flatnonzero(free)
    none = np.full(len(row), -1, dtype=np.int64)
    return Pieces(
        row=row,
        length=free[row],
        next=none,
        document=np.full_like(none, PADDING),
        shard=none,
        source=np.zeros_like(none),
    )


def _runs(pieces: Pieces) -> Iterator[Run]:
    """Stretches to copy; pieces that lie end to end in their shard are one."""
    if not len(pieces.length):
        return
    bounds = bounds_of(pieces.length)
    breaks = np.diff(pieces.shard) != 0
    breaks |= pieces.source[1:] != pieces.source[:-1] + pieces.length[:-1]
    starts = np.append(0, np.flatnonzero(breaks) + 1)
    places = bounds[starts]
    lengths = np.diff(np.append(places, bounds[-1]))
    yield from zip(
        pieces.shard[starts].tolist(),
        places.tolist(),
        pieces.source[starts].tolist(),
        lengths.tolist(),
        strict=True,
    )


def _of_shards(runs: Sequence[Run]) -> dict[int, list[tuple[int, int]]]:
    """First token and length of the stretches of each shard."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, _, start, length in runs:
        if number >= 0:
            found.setdefault(number, []).append((start, length))
    return found
