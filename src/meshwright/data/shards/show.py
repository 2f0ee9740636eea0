"""Rows and documents of a folder of shards as text, with where each part of them comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.shards.aside import SetAside
from meshwright.data.shards.folder import Folder, open_folder
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.names import DOCUMENTS, SPLITS, TOKENIZER
from meshwright.data.shards.origin import find, origins
from meshwright.data.shards.retokenize import load_tokenizer
from meshwright.data.shards.why import why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.data.shards.origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tokens offset:offset + len(ids) of a document, in a row."""

    row: int  # of the split
    document: int  # of the split
    offset: int
    of: int  # tokens of the whole document
    ids: tuple[int, ...]
    text: str | None  # None where no tokenizer was saved, or for ids it does not have
    next: int  # the token that follows in the document, -1 at its end
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A row, or all parts of a document."""

    split: str
    shard: str
    rows: int  # of the split
    seq_len: int
    row: int | None
    document: int | None
    padding: int  # tokens, of a row
    cost: int  # sum of squared lengths, of a row
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What became of a document: why it went, or the split and its number there if it is in one."""

    origin: Origin
    why: str = ""
    split: str | None = None
    document: int | None = None


def show_row(folder: Path | str, row: int, *, split: str = "train") -> Shown:
    """A row by its number in the split; MeshwrightError outside, InvalidInput when damaged."""
    shards = _open(folder, split)
    if not 0 <= row < len(shards):
        raise MeshwrightError(
            f"{split} has no row {row:,}", hint=f"type --row 0 to --row {len(shards) - 1}"
        )
    number, inside = shards.place(row)
    found = shards.shard(number).plan.rows[inside]
    pieces = shards.row(row)[1]
    return Shown(
        split=split,
        shard=shards.records[number].name,
        rows=len(shards),
        seq_len=shards.seq_len,
        row=row,
        document=None,
        padding=shards.seq_len - int(found["tokens"]),
        cost=int(found["cost"]),
        parts=_parts(shards, number, pieces=pieces, rows=[row] * len(pieces)),
    )


def show_document(folder: Path | str, document: int, *, split: str = "train") -> Shown:
    """A document by its number in the split, with the rows that hold it."""
    shards = _open(folder, split)
    bounds = np.cumsum([0, *(record.documents for record in shards.records)])
    if not 0 <= document < bounds[-1]:
        raise MeshwrightError(
            f"{split} has no document {document:,}",
            hint=f"type --document 0 to --document {bounds[-1] - 1}",
        )
    number = int(np.searchsorted(bounds, document, side="right")) - 1
    shard = shards.shard(number)
    places = shard.places_of(document - int(bounds[number]))
    firsts = shard.plan.rows["first"]
    rows = np.searchsorted(firsts, places, side="right") - 1 + shards.bounds[number]
    pieces = np.asarray(shard.plan.pieces[places])
    return Shown(
        split=split,
        shard=shards.records[number].name,
        rows=len(shards),
        seq_len=shards.seq_len,
        row=None,
        document=document,
        padding=0,
        cost=int((pieces["length"].astype(np.int64) ** 2).sum()),
        parts=_parts(shards, number, pieces=pieces, rows=rows.tolist()),
    )


def locate(folder: Path | str, place: str) -> Located | SetAside:
    """What became of the document read at file:line, or why the line was none."""
    root = Path(folder)
    manifest = read_manifest(root)
    origin = find(root, place)
    if isinstance(origin, SetAside):
        return origin
    for split in SPLITS:
        before = 0
        for record in manifest.of_split(split):
            if record.name == origin.shard and origin.document is not None:
                return Located(origin=origin, split=split, document=before + origin.document)
            before += record.documents
    return Located(origin=origin, why=why(origin, manifest))


def _open(folder: Path | str, split: str) -> Folder:
    shards = open_folder(folder, split)
    if not len(shards):
        others = [s for s in SPLITS if shards.manifest.of_split(s)]
        hint = f"type --split {others[0]}" if others else "meshwright data stats tells why"
        raise MeshwrightError(f"{str(folder)!r} has no rows in {split}", hint=hint)
    return shards


def _parts(
    shards: Folder, number: int, *, pieces: NDArray[Any], rows: Sequence[int]
) -> tuple[Part, ...]:
    """Pieces of one shard as text."""
    shard, record = shards.shard(number), shards.records[number]
    before = sum(earlier.documents for earlier in shards.records[:number])
    tokenizer = _tokenizer(shards)
    found = {}
    if DOCUMENTS in shards.manifest.files:
        found = origins(shards.path, record.name, pieces["document"].tolist())
    parts = []
    for piece, row in zip(pieces, rows, strict=True):
        document, ids = int(piece["document"]), shard.piece(piece).tolist()
        parts.append(
            Part(
                row=row,
                document=before + document,
                offset=int(piece["offset"]),
                of=int(shard.pieces_of(document)["length"].sum()),
                ids=tuple(ids),
                text=_text(tokenizer, ids, vocab_size=shards.vocabulary.vocab_size),
                next=int(piece["next"]),
                origin=found.get(document),
            )
        )
    return tuple(parts)


def _text(tokenizer: Any, ids: list[int], *, vocab_size: int) -> str | None:
    """The text of ids; None without a tokenizer, and for ids that are none of its."""
    if tokenizer is None or any(not 0 <= one < vocab_size for one in ids):
        return None
    try:
        return str(tokenizer.decode(ids))
    except (LookupError, ValueError):  # a gap in the vocabulary
        return None


def _tokenizer(shards: Folder) -> Any:
    """The tokenizer that was saved with the shards; None where none was."""
    saved = any(name.startswith(f"{TOKENIZER}/") for name in shards.manifest.files)
    return load_tokenizer(shards.path, shards) if saved else None
