"""A pair of .bin and .idx files of Megatron without a manifest: documents end to end, cut in rows.

Row n holds the tokens from n * seq_len on, the last and shorter one is left out. As in shards, a
label is the token that follows in the same document, and IGNORED where none does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.data.loader.batch import IGNORED
from meshwright.data.loader.epochs import Epochs, rows_at
from meshwright.data.shards.indexed import open_indexed
from meshwright.train.feeding.rows import Read

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.data.shards.indexed import Indexed

    Numbers = NDArray[np.int64]


class IndexedTable:
    """The rows of one pair of files, in an order of their own in every epoch."""

    def __init__(
        self,
        prefix: Path,
        *,
        seq_len: int,
        vocab_size: int,
        seed: int,
        shuffle: bool,
        document_masks: bool,
    ) -> None:
        self.seq_len = seq_len
        self._vocab_size = vocab_size
        self._name = prefix.name
        self._indexed = open_indexed(prefix)
        self._tokens = self._indexed.tokens
        self._masks = document_masks
        self._ends = _ends_of_documents(self._indexed)
        self.count: int | None = len(self._tokens) // seq_len
        if not self.count:
            held = f"{len(self._tokens):,} tokens"
            raise MeshwrightError(
                f"{str(prefix)!r} has {held}, fewer than a row of {seq_len:,}",
                hint="give more data, or a shorter workload.seq_len",
            )
        self._epochs = Epochs(rows=(self.count,), seed=seed, shuffle=shuffle)

    @property
    def identity(self) -> Mapping[str, Any]:
        """Name and sizes of the files, seed and order."""
        return {
            "indexed": self._name,
            "tokens": len(self._tokens),
            "documents": len(self._ends),
            "seq_len": self.seq_len,
            "seed": self._epochs.seed,
            "shuffle": self._epochs.shuffle,
        }

    def number(self, samples: Numbers) -> Numbers:
        """Rows in the order of their epoch."""
        return rows_at(samples, self._epochs)

    def read(self, rows: Numbers) -> Read:
        """Rows by number [rows, seq_len]."""
        firsts = rows * self.seq_len
        places = firsts[:, None] + np.arange(self.seq_len)
        tokens = np.stack([self._slice(first, self.seq_len) for first in firsts.tolist()])
        self._check(tokens)
        documents = np.searchsorted(self._ends, places, side="right")
        followers = np.stack([self._slice(first + 1, self.seq_len) for first in firsts.tolist()])
        is_last = places + 1 == self._ends[documents]
        labels = np.where(is_last, IGNORED, followers)
        if not self._masks:
            return Read(tokens=tokens, labels=labels)
        begins = np.append(0, self._ends)[documents]
        positions = places - np.maximum(begins, firsts[:, None])
        numbers = (documents - documents[:, :1]).astype(np.int32)
        return Read(tokens=tokens, labels=labels, positions=positions, documents=numbers)

    def _check(self, tokens: Numbers) -> None:
        """Ids that the model has; a GPU would only say that an assertion failed."""
        if tokens.min() < 0 or tokens.max() >= self._vocab_size:
            wrong = int(tokens.max() if tokens.max() >= self._vocab_size else tokens.min())
            raise MeshwrightError(
                f"{self._name}.bin holds token {wrong:,}; the model knows {self._vocab_size:,}",
                hint="cut the text with the model's own tokenizer, or enlarge vocab_size",
            )

    def _slice(self, first: int, length: int) -> Numbers:
        """Tokens from `first` on; what lies behind the end is IGNORED."""
        found = np.full(length, IGNORED, dtype=np.int64)
        part = self._tokens[first : first + length]
        found[: len(part)] = part
        return found


def _ends_of_documents(indexed: Indexed) -> Numbers:
    """The token behind each document that has any; the last is the number of tokens."""
    ends = np.append(0, np.cumsum(indexed.lengths, dtype=np.int64))[indexed.documents[1:]]
    return np.unique(ends[ends > 0])
