"""Tokens made from the seed and the number of the sample, with something to learn in them.

A row counts up in steps of a fixed stride over a small alphabet and now and then begins anew at
random, so that nine of ten tokens follow from the one before: the loss falls within a few dozen
steps towards that of the tenth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.train.feeding.rows import Read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

ALPHABET = 256  # tokens that occur, or the whole vocabulary where that is smaller
ANEW = 0.1  # share of the tokens that do not follow
_FORMAT = 1  # changes when the same seed comes to mean other tokens


class Synthetic:
    """A table without end."""

    count: int | None = None

    def __init__(self, *, seq_len: int, vocab_size: int, seed: int) -> None:
        self.seq_len = seq_len
        self._alphabet = min(vocab_size, ALPHABET)
        self._stride = 1 + self._alphabet // 3
        self._seed = seed

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the tokens follow from."""
        return {
            "synthetic": _FORMAT,
            "seed": self._seed,
            "alphabet": self._alphabet,
            "seq_len": self.seq_len,
        }

    def number(self, samples: Numbers) -> Numbers:
        """Samples are rows."""
        return samples

    def read(self, rows: Numbers) -> Read:
        """Tokens and what follows them [rows, seq_len]."""
        tokens = np.stack([self._row(row) for row in rows.tolist()])
        return Read(tokens=tokens[:, :-1].copy(), labels=tokens[:, 1:].copy())

    def _row(self, row: int) -> Numbers:
        """Tokens of a row and the one behind it [seq_len + 1]."""
        draw = np.random.Generator(np.random.Philox(key=[self._seed, row]))
        length = self.seq_len + 1
        anew = draw.random(length) < ANEW
        anew[0] = True
        starts = draw.integers(self._alphabet, size=length)
        places = np.arange(length)
        begun = np.maximum.accumulate(np.where(anew, places, 0))
        tokens: Numbers = (starts[begun] + self._stride * (places - begun)) % self._alphabet
        return tokens
