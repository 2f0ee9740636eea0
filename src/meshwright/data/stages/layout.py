"""The columns that stages hand to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from meshwright.data.settings import Build
    from meshwright.data.source.unit import Input, Unit
    from meshwright.data.work.store import Store

# scan: every document read, in the order of the input. `reason` is a code of `reasons.CODES`.
DOCUMENT = np.dtype(
    [
        ("input", "<i4"),
        ("line", "<i8"),
        ("bytes", "<i8"),  # UTF-8 as read
        ("reason", "<u2"),
        ("language", "<u2"),  # number in clean.language.CODES; 0 = not asked
        ("measured", "<f4"),  # what the reason judges: a share, a count, a score; -1 = nothing
        ("item", "<i4"),  # number in decontaminate.Index.items of what it shares; -1 = nothing
    ]
)
# scan: the documents that passed every filter, in the same order. Their text is
# block[start:stop] of the decompressed block.
SURVIVOR = np.dtype(
    [
        ("row", "<i4"),  # in `documents`
        ("key", "<u8", (2,)),  # 128-bit hash of the cleaned text
        ("block", "<i4"),
        ("start", "<i8"),
        ("stop", "<i8"),
        ("words", "<i4"),
    ]
)
# scan: one zstd frame of `text.zst` for each batch.
BLOCK = np.dtype([("offset", "<i8"), ("stored", "<i8"), ("bytes", "<i8")])
# decide: survivors that go, with the earlier document that each repeats. One row per duplicate.
DROPPED = np.dtype(
    [
        ("unit", "<i4"),
        ("survivor", "<i4"),
        ("reason", "<u2"),
        ("of_unit", "<i4"),
        ("of_survivor", "<i4"),
        ("similarity", "<f4"),  # Jaccard; 1 for exact ones
    ]
)
# arrange: the documents of a shard, in the order in which they are written.
PLACED = np.dtype(
    [
        ("unit", "<i4"),  # of tokenize, and the place in its `lengths`
        ("index", "<i4"),
        ("start", "<i8"),  # in its `tokens`
        ("length", "<i4"),
    ]
)
# the pack plan beside a shard: its rows, and the pieces of documents that each row holds.
ROW = np.dtype(
    [
        ("first", "<i8"),  # its first piece
        ("pieces", "<i4"),  # how many follow each other from there
        ("tokens", "<i4"),  # in them together: the rest of seq_len is padding
        ("cost", "<i8"),  # sum of their squared lengths, what attention costs with document masks
    ]
)
PIECE = np.dtype(
    [
        ("sequence", "<i4"),  # of .bin that holds the tokens
        ("start", "<i4"),  # its first token in that sequence
        ("length", "<i4"),  # its tokens
        ("next", "<i4"),  # the token that follows in the document, -1 at its end
        ("document", "<i4"),  # its number in the shard, as in documents.parquet
        ("offset", "<i4"),  # its first token in that document
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a stage needs to run any of its units."""

    build: Build
    inputs: tuple[Input, ...]
    units: tuple[Unit, ...]  # of the scan
    store: Store  # below the output folder
    digests: tuple[tuple[str, str], ...] = ()  # of files that the settings name, for the keys
