"""A batch of documents, held as columns: the unit in which text moves through every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Offsets = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Verdict = Mapping[str, Mask]  # reason -> which documents it drops; the first reason counts

BATCH_BYTES = 2 << 20  # text of one batch; a longer document is a batch of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Documents of one batch, in the order of their input.

    `text` holds their UTF-8, end to end and always valid; document i is
    text[bounds[i]:bounds[i + 1]]. `input` is the number of the file that each comes from and `line`
    where in it, from 1: the line at which it starts, or the parquet row. As `source.reading` gives
    them, lines count from the start of the unit's part of the file. `ids` are the names that the
    input gives them, "" where it gives none; `()` stands for none at all.
    """

    text: Bytes
    bounds: Offsets
    input: NDArray[np.int32]
    line: Offsets
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def lengths(self) -> Offsets:
        """Bytes of each document."""
        return np.diff(self.bounds)

    def encoded(self, index: int) -> bytes:
        """The UTF-8 of one document."""
        return self.text[self.bounds[index] : self.bounds[index + 1]].tobytes()

    def string(self, index: int) -> str:
        """One document as a string."""
        return self.encoded(index).decode()

    def beginning(self, index: int, characters: int) -> str:
        """How one document begins."""
        start, stop = self.bounds[index : index + 2].tolist()
        head = self.text[start : min(stop, start + 4 * characters)].tobytes()
        return head.decode(errors="ignore")[:characters]

    def strings(self) -> list[str]:
        """Every document as a string."""
        return [self.string(index) for index in range(len(self))]

    def take(self, chosen: Mask) -> Documents:
        """Those documents that `chosen` marks; the batch itself when it marks all."""
        if chosen.all():
            return self
        numbers = np.flatnonzero(chosen)
        parts = [self.text[self.bounds[i] : self.bounds[i + 1]] for i in numbers.tolist()]
        return Documents(
            text=np.concatenate(parts) if parts else self.text[:0],
            bounds=bounds_of(self.lengths[numbers]),
            input=self.input[numbers],
            line=self.line[numbers],
            ids=tuple(self.ids[i] for i in numbers.tolist()) if self.ids else (),
        )

    def with_texts(self, changed: Mapping[int, bytes]) -> Documents:
        """A copy in which the documents numbered in `changed` have another text (valid UTF-8)."""
        if not changed:
            return self
        parts = [changed.get(i, None) for i in range(len(self))]
        texts = [self.encoded(i) if part is None else part for i, part in enumerate(parts)]
        return Documents(
            text=np.frombuffer(b"".join(texts), dtype=np.uint8),
            bounds=bounds_of(np.array([len(text) for text in texts], dtype=np.int64)),
            input=self.input,
            line=self.line,
            ids=self.ids,
        )


def documents_of(
    texts: Sequence[str | bytes],
    *,
    input: int = 0,
    lines: Sequence[int] = (),
    ids: Sequence[str] = (),
) -> Documents:
    """A batch of given texts, numbered from 1 unless `lines` says otherwise."""
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    return Documents(
        text=np.frombuffer(b"".join(encoded), dtype=np.uint8),
        bounds=bounds_of(np.array([len(text) for text in encoded], dtype=np.int64)),
        input=np.full(len(encoded), input, dtype=np.int32),
        line=np.array(lines or range(1, len(encoded) + 1), dtype=np.int64),
        ids=tuple(ids),
    )


def bounds_of(lengths: NDArray[np.integer]) -> Offsets:
    """Where each of consecutive stretches of these lengths begins, and where the last ends."""
    bounds = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds
