"""Opens a folder of shards for reading: rows by number, mapped into memory."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.shards.damage import damaged
from meshwright.data.shards.indexed import open_indexed
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.plan import open_plan
from meshwright.data.stages.layout import PIECE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.shards.indexed import Indexed
    from meshwright.data.shards.manifest import Manifest, Packed, ShardRecord, Vocabulary
    from meshwright.data.shards.plan import Plan
OPEN_SHARDS = 64  # of a folder; each takes 4 file descriptors


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One opened shard."""

    record: ShardRecord
    indexed: Indexed
    plan: Plan

    @cached_property
    def by_document(self) -> NDArray[np.int64]:
        """The pieces in the order of documents, and of their place in them [pieces]."""
        pieces = self.plan.pieces
        order: NDArray[np.int64] = np.lexsort((pieces["offset"], pieces["document"]))
        return order

    def piece(self, piece: Any) -> NDArray[Any]:
        """The tokens of a row of `layout.PIECE`."""
        start = int(piece["start"])
        return self.indexed[int(piece["sequence"])][start : start + int(piece["length"])]

    def places_of(self, document: int) -> NDArray[np.int64]:
        """Which pieces are those of a document, in its order."""
        order, numbers = self.by_document, self.plan.pieces["document"]
        first, last = np.searchsorted(numbers, [document, document + 1], sorter=order)
        return order[first:last]

    def pieces_of(self, document: int) -> NDArray[Any]:
        """The pieces of a document, in its order."""
        return np.asarray(self.plan.pieces[self.places_of(document)])

    def document(self, document: int) -> NDArray[Any]:
        """The tokens of a document, its EOD included; empty when the shard has none such."""
        parts = [self.piece(piece) for piece in self.pieces_of(document)]
        return np.concatenate([self.indexed.tokens[:0], *parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows side by side: row r has the pieces bounds[r]:bounds[r + 1], in its order."""

    tokens: NDArray[Any]  # [rows, seq_len], padded
    pieces: NDArray[Any]  # as `layout.PIECE`
    bounds: NDArray[np.int64]  # [rows + 1]


class Folder:
    """The rows of one split, numbered through all of its shards.

    Shards are opened when a row of theirs is asked for, looked into the first time, and closed
    when `open_shards` others were used since. A copy that is pickled opens them anew.
    """

    def __init__(self, path: Path, split: str, manifest: Manifest) -> None:
        self.path = path
        self.split = split
        self.manifest = manifest
        self.records = tuple(manifest.of_split(split))
        self.bounds = bounds_of(np.array([r.rows for r in self.records], dtype=np.int64))
        self.open_shards = OPEN_SHARDS  # at most; fewer where many folders are open
        self._opened: OrderedDict[int, Shard] = OrderedDict()
        self._checked: set[int] = set()

    def __len__(self) -> int:
        """Rows."""
        return int(self.bounds[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return open_folder, (self.path, self.split)

    @property
    def packed(self) -> Packed:
        """Length of rows, strategy and layout."""
        assert self.manifest.packed is not None  # open_folder has seen to it
        return self.manifest.packed

    @property
    def vocabulary(self) -> Vocabulary:
        """Size of the vocabulary and its special ids."""
        assert self.manifest.vocabulary is not None
        return self.manifest.vocabulary

    @property
    def seq_len(self) -> int:
        """Tokens of a row, padding included."""
        return self.packed.seq_len

    @property
    def tokens(self) -> int:
        """Tokens of all rows, padding left out."""
        return sum(record.tokens for record in self.records)

    @cached_property
    def costs(self) -> NDArray[np.int64]:
        """Sum of squared piece lengths of every row [rows]; 8 bytes of memory for each."""
        numbers = range(len(self.records))
        parts = [np.array(self.shard(number).plan.rows["cost"]) for number in numbers]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def shard(self, number: int) -> Shard:
        """A shard by its place in `records`; InvalidInput when it is damaged."""
        if number not in self._opened:
            check = number not in self._checked
            self._opened[number] = open_shard(self, self.records[number], check=check)
            self._checked.add(number)
            while len(self._opened) > self.open_shards:
                self._opened.popitem(last=False)
        self._opened.move_to_end(number)
        return self._opened[number]

    def place(self, row: int) -> tuple[int, int]:
        """The shard (its place in `records`) and the row in it; IndexError outside."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        shard = int(np.searchsorted(self.bounds, row, side="right")) - 1
        return shard, row - int(self.bounds[shard])

    def row(self, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The tokens of a row without padding, and its pieces as `layout.PIECE`."""
        number, inside = self.place(row)
        return _row(self.shard(number), inside, layout=self.packed.layout)

    def rows(self, rows: NDArray[np.integer]) -> RowBatch:
        """Several rows, in the order asked for, padded to `seq_len`."""
        tokens = np.full(
            (len(rows), self.seq_len), self.vocabulary.pad_id, dtype=self.vocabulary.dtype
        )
        pieces = [np.zeros(0, dtype=PIECE)]
        for out, row in zip(tokens, rows.tolist(), strict=True):
            found, parts = self.row(row)
            out[: len(found)] = found
            pieces.append(parts)
        return RowBatch(
            tokens=tokens,
            pieces=np.concatenate(pieces),
            bounds=bounds_of(np.array([len(part) for part in pieces[1:]], dtype=np.int64)),
        )


def open_folder(path: Path | str, split: str = "train") -> Folder:
    """The rows of a split of a folder that a build made; InvalidInput when it is none.

    A split without a document has no rows. MeshwrightError for a folder that holds text alone.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if manifest.packed is None or manifest.vocabulary is None:
        raise MeshwrightError(
            f"{str(folder)!r} holds cleaned text, no tokens",
            hint="name a tokenizer and build it again: meshwright data build --tokenizer FILE",
        )
    return Folder(folder, split, manifest)


def open_shard(folder: Folder, record: ShardRecord, *, check: bool = True) -> Shard:
    """Opens one shard; InvalidInput when it is damaged or not what the manifest says.

    Without `check` its columns are not looked into, for one that was before.
    """
    prefix = folder.path / record.name
    indexed = open_indexed(prefix, check=check)
    if indexed.tokens.dtype != folder.vocabulary.dtype:
        reason = f"holds {indexed.tokens.dtype}, the manifest says {folder.vocabulary.dtype}"
        raise damaged(prefix.with_name(f"{record.name}.idx"), reason)
    plan = open_plan(prefix, indexed, seq_len=folder.seq_len, check=check)
    if len(plan.rows) != record.rows:
        reason = f"has {len(plan.rows):,} rows where the manifest says {record.rows:,}"
        raise damaged(prefix.with_name(f"{record.name}.rows.npy"), reason)
    return Shard(record=record, indexed=indexed, plan=plan)


def _row(shard: Shard, row: int, *, layout: str) -> tuple[NDArray[Any], NDArray[Any]]:
    found = shard.plan.rows[row]
    first, count = int(found["first"]), int(found["pieces"])
    pieces = np.asarray(shard.plan.pieces[first : first + count])
    if layout == "rows":
        return shard.indexed[row][: int(found["tokens"])], pieces
    parts = [
        shard.indexed[sequence][start : start + length]
        for sequence, start, length in zip(
            pieces["sequence"].tolist(),
            pieces["start"].tolist(),
            pieces["length"].tolist(),
            strict=True,
        )
    ]
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)), pieces
