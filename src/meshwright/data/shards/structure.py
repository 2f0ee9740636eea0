"""Whether a shard is one: every token of every document in one place, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import InvalidInput
from meshwright.data.documents import bounds_of
from meshwright.data.shards.integrity import REPORT, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.base.finding import Finding
    from meshwright.data.shards.folder import Folder, Shard

_BLOCK = 1 << 22  # tokens looked at at once


def check_shard(folder: Folder, number: int) -> list[Finding]:
    """What is wrong with a shard whose files are as they were written."""
    record = folder.records[number]
    try:
        shard = folder.shard(number)
    except InvalidInput as error:
        return list(error.findings)
    path = folder.path / record.name
    complaints = [*_counts(shard), *_ids(shard, folder), *_places(shard, folder)]
    if not complaints:
        complaints = list(_documents(shard, folder))
    return [
        finding(path.with_name(f"{path.name}{end}"), text, hint=REPORT) for end, text in complaints
    ]


def _counts(shard: Shard) -> Iterator[tuple[str, str]]:
    """The manifest's counts against the plan."""
    rows, pieces, record = shard.plan.rows, shard.plan.pieces, shard.record
    counted = {
        "documents": len(np.unique(pieces["document"])),
        "tokens": int(rows["tokens"].sum(dtype=np.int64)),
        "rows": len(rows),
        "pieces": len(pieces),
        "cost": int(rows["cost"].sum()),
        "largest_cost": int(rows["cost"].max(initial=0)),
    }
    for name, count in counted.items():
        told = getattr(record, name)
        if told != count:
            yield ".rows.npy", f"makes {count:,} {name}, the manifest says {told:,}"


def _ids(shard: Shard, folder: Folder) -> Iterator[tuple[str, str]]:
    """Ids outside the vocabulary."""
    tokens, size = shard.indexed.tokens, folder.vocabulary.vocab_size
    for first in range(0, len(tokens), _BLOCK):
        part = tokens[first : first + _BLOCK]
        wrong = (part >= size) | (part < 0)
        if wrong.any():
            place = first + int(np.argmax(wrong))
            offset = place * tokens.itemsize
            yield ".bin", f"has id {int(tokens[place])} of {size:,} at byte {offset:,}"
            return


def _places(shard: Shard, folder: Folder) -> Iterator[tuple[str, str]]:
    """Pieces lie where the layout says, with padding behind them."""
    pieces, rows = shard.plan.pieces, shard.plan.rows
    if folder.packed.layout == "documents":
        if (pieces["sequence"] != pieces["document"]).any() or (
            pieces["start"] != pieces["offset"]
        ).any():
            yield ".pieces.npy", "has a piece that is not where its document is"
        return
    if len(shard.indexed) != len(rows) or (shard.indexed.lengths != folder.seq_len).any():
        yield ".idx", f"has sequences other than {len(rows):,} rows of {folder.seq_len:,} tokens"
        return
    row = np.repeat(np.arange(len(rows)), rows["pieces"])
    ends = bounds_of(pieces["length"])
    starts = ends[:-1] - ends[rows["first"]][row]
    if (pieces["sequence"] != row).any() or (pieces["start"] != starts).any():
        yield ".pieces.npy", "has a piece that is not in its place in its row"
    yield from _padding(shard, folder)


def _padding(shard: Shard, folder: Folder) -> Iterator[tuple[str, str]]:
    """Rows end in padding and nothing else."""
    seq_len, pad = folder.seq_len, folder.vocabulary.pad_id
    tokens = shard.indexed.tokens.reshape(-1, seq_len)
    for row in np.flatnonzero(shard.plan.rows["tokens"] < seq_len).tolist():
        used = int(shard.plan.rows["tokens"][row])
        if (tokens[row, used:] != pad).any():
            yield ".bin", f"has row {row:,} with something else than padding behind its {used:,}"
            return


def _documents(shard: Shard, folder: Folder) -> Iterator[tuple[str, str]]:
    """The pieces of each document are all of it, end in EOD, and know what follows them."""
    pieces = np.asarray(shard.plan.pieces)[shard.by_document]
    if not len(pieces):
        return
    documents = pieces["document"]
    if documents[-1] >= shard.record.documents:
        yield ".pieces.npy", f"names document {int(documents[-1]):,}, which is not there"
        return
    goes_on = np.append(documents[1:] == documents[:-1], False)
    complaint = _parts(shard, pieces, goes_on, whole=folder.packed.layout == "documents")
    if complaint:
        yield ".pieces.npy", complaint
        return
    yield from _followers(shard, pieces, goes_on, eod_id=folder.vocabulary.eod_id)


def _parts(shard: Shard, pieces: NDArray[Any], goes_on: NDArray[np.bool_], *, whole: bool) -> str:
    """Whether pieces follow each other from the start of their document, `whole` to its end."""
    ends = pieces["offset"].astype(np.int64) + pieces["length"]
    expected = np.append(0, np.where(goes_on, ends, 0)[:-1])
    wrong = pieces["offset"] != expected
    if wrong.any():
        document = int(pieces["document"][np.argmax(wrong)])
        return f"has a part of document {document:,} twice or not at all"
    lengths = shard.indexed.lengths
    if whole and (ends[~goes_on] != lengths[pieces["document"][~goes_on]]).any():
        return "leaves out the end of a document"
    return ""


def _followers(
    shard: Shard, pieces: NDArray[Any], goes_on: NDArray[np.bool_], *, eod_id: int
) -> Iterator[tuple[str, str]]:
    """`next` is the first token of the next piece, and the last piece ends in EOD."""
    first, last = _borders(shard, pieces)
    follows = np.where(goes_on, np.append(first[1:], -1), -1)
    wrong = pieces["next"] != follows
    if wrong.any():
        piece = int(shard.by_document[np.argmax(wrong)])
        yield ".pieces.npy", f"names another token behind piece {piece:,} than the one there"
    if (last[~goes_on] != eod_id).any():
        yield ".bin", "has a document that does not end in the end of text"


def _borders(shard: Shard, pieces: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first and the last token of each piece."""
    offsets = shard.indexed.offsets[pieces["sequence"]] // shard.indexed.tokens.itemsize
    starts = offsets + pieces["start"]
    tokens = shard.indexed.tokens
    last = tokens[starts + pieces["length"] - 1]
    return tokens[starts].astype(np.int64), last.astype(np.int64)
