"""How large a corpus of tokens is on disk: one that is to be built, or one that is there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.settings import Output
from meshwright.data.shards.indexed import HEADER, dtype_for
from meshwright.data.stages.layout import PIECE, ROW

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.data.shards.manifest import Manifest

LARGE_FILE_BYTES = 10e9  # Megatron-LM docs/user-guide/data-loading.md (d98e8a64), step 1
FEW_FILES = 100
INDEX_BYTES = HEADER.size + 8  # of a .idx: its header, and where the first document begins
INDEX_DOCUMENT_BYTES = 4 + 8 + 8  # length, offset, and where the next document begins
DOCUMENT_TOKENS = 1000  # of an average document, where nothing says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Tokens on disk, each once. Bytes and files are those of the training split.

    `read_stretches` is how many stretches of a file a row is read from. `folder` is where the
    corpus was found, "" for one that is only planned.
    """

    tokens: float
    seq_len: int
    vocab_size: int
    token_bytes: int
    documents: float
    rows: float
    pieces: float
    files: int
    shard_tokens: float
    bin_bytes: float
    index_bytes: float  # .idx
    plan_bytes: float  # .rows.npy and .pieces.npy
    read_stretches: float
    document_tokens_cv: float | None = None  # standard deviation of lengths over their mean
    folder: str = ""

    @property
    def file_bytes(self) -> float:
        """Mean bytes of a .bin."""
        return self.bin_bytes / max(self.files, 1)


def planned(
    tokens: float, *, seq_len: int, vocab_size: int, document_tokens: float = DOCUMENT_TOKENS
) -> Corpus:
    """A corpus as `data build` would write it, concatenated, without padding.

    Shards are as large as usual while that makes few files, else as large as Megatron advises.
    """
    token_bytes = int(dtype_for(vocab_size).itemsize)
    bin_bytes = tokens * token_bytes
    documents, rows = math.ceil(tokens / document_tokens), math.ceil(tokens / seq_len)
    shard_tokens = float(Output(folder="").shard_tokens)
    if tokens > FEW_FILES * shard_tokens:
        shard_tokens = max(LARGE_FILE_BYTES / token_bytes, shard_tokens)
    files = max(math.ceil(tokens / shard_tokens), 1)
    pieces = documents + rows
    return Corpus(
        tokens=tokens,
        seq_len=seq_len,
        vocab_size=vocab_size,
        token_bytes=token_bytes,
        documents=documents,
        rows=rows,
        pieces=pieces,
        files=files,
        shard_tokens=shard_tokens,
        bin_bytes=bin_bytes,
        index_bytes=float(INDEX_BYTES * files + INDEX_DOCUMENT_BYTES * documents),
        plan_bytes=float(ROW.itemsize * rows + PIECE.itemsize * pieces),
        read_stretches=1.0,
    )


def built(folder: Path) -> Corpus:
    """The corpus in a folder of shards, from its manifest and the plan of its first shard.

    InvalidInput or MeshwrightError when it is no finished folder of tokens.
    """
    from meshwright.data.shards.folder import open_folder

    if folder.is_file():
        raise MeshwrightError(
            f"{str(folder)!r} is a file, not a folder of shards",
            hint="name a folder that meshwright data build made; of a blend, each by itself",
        )
    opened = open_folder(folder)
    manifest, records = opened.manifest, opened.records
    pieces = sum(record.pieces for record in records)
    scattered = opened.packed.strategy == "best-fit" and opened.packed.layout == "documents"
    return Corpus(
        tokens=float(opened.tokens),
        seq_len=opened.seq_len,
        vocab_size=opened.vocabulary.vocab_size,
        token_bytes=np.dtype(opened.vocabulary.dtype).itemsize,
        documents=sum(record.documents for record in records),
        rows=len(opened),
        pieces=pieces,
        files=len(records),
        shard_tokens=max((record.tokens for record in records), default=0),
        bin_bytes=_bytes(manifest, (".bin",)),
        index_bytes=_bytes(manifest, (".idx",)),
        plan_bytes=_bytes(manifest, (".rows.npy", ".pieces.npy")),
        read_stretches=pieces / max(len(opened), 1) if scattered else 1.0,
        document_tokens_cv=_spread(opened.shard(0).plan.pieces) if records else None,
        folder=str(folder),
    )


def _bytes(manifest: Manifest, endings: tuple[str, ...]) -> float:
    names = [r.name + ending for r in manifest.of_split("train") for ending in endings]
    return float(sum(manifest.files[name].bytes for name in names if name in manifest.files))


def _spread(pieces: np.ndarray[tuple[int], np.dtype[np.void]]) -> float | None:
    """Standard deviation of the lengths of a shard's documents over their mean."""
    if not len(pieces):
        return None
    lengths = np.bincount(pieces["document"], pieces["length"])
    return float(lengths.std() / lengths.mean())
