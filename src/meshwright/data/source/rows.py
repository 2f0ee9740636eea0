"""What the readers of single formats yield, and its gathering into batches."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import BATCH_BYTES, Documents, bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rows:
    """A few documents of one input: their UTF-8, their line numbers and, if asked for, names.

    `repaired` of them were not UTF-8 before.
    """

    texts: Sequence[bytes]
    lines: Sequence[int]
    ids: Sequence[str] = ()
    repaired: int = 0


class Gathering:
    """Documents on their way into batches."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, Rows]] = []  # by input
        self._bytes = 0

    def add(self, rows: Rows, *, input: int) -> Iterator[Documents]:
        """Takes a few documents of one input; yields the batches that are full with them."""
        self._rows.append((input, rows))
        self._bytes += sum(map(len, rows.texts))
        if self._bytes >= BATCH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Documents]:
        """What there is, as a batch, unless there is nothing."""
        if self._rows:
            batch = _batch(self._rows)
            self._rows, self._bytes = [], 0
            yield batch


def _batch(held: list[tuple[int, Rows]]) -> Documents:
    texts = list(chain.from_iterable(rows.texts for _, rows in held))
    inputs = np.array([number for number, _ in held], dtype=np.int32)
    return Documents(
        text=np.frombuffer(b"".join(texts), dtype=np.uint8),
        bounds=bounds_of(np.fromiter(map(len, texts), np.int64, len(texts))),
        input=np.repeat(inputs, [len(rows.texts) for _, rows in held]),
        line=np.concatenate([_numbers(rows.lines) for _, rows in held]),
        ids=_names([rows for _, rows in held]),
    )


def _names(held: Sequence[Rows]) -> tuple[str, ...]:
    """A name for each document, as soon as any has one: text files in between have none."""
    if not any(rows.ids for rows in held):
        return ()
    parts = (rows.ids or [""] * len(rows.texts) for rows in held)
    return tuple(chain.from_iterable(parts))


def _numbers(lines: Sequence[int]) -> NDArray[np.int64]:
    if isinstance(lines, range):
        return np.arange(lines.start, lines.stop, dtype=np.int64)
    return np.array(lines, dtype=np.int64)
