"""Rows of training: which pieces of which documents each of them holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.stages.layout import PIECE, ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A packing: row r holds the pieces bounds[r]:bounds[r + 1], in that order.

    Piece p is the tokens offset[p]:offset[p] + length[p] of the document numbered document[p];
    together the pieces hold every token of every document once. No row holds more than `seq_len`.
    """

    seq_len: int
    bounds: Column  # [rows + 1]
    document: Column  # [pieces], as the other two
    offset: Column
    length: Column

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def tokens(self) -> Column:
        """Tokens in each row, padding left out [rows]."""
        return _sums(self.length, self.bounds)

    @property
    def cost(self) -> Column:
        """Sum over the pieces of a row of their squared length, as attention costs [rows]."""
        return _sums(self.length * self.length, self.bounds)

    def take(self, order: Column) -> Rows:
        """The rows numbered in `order`, in that order."""
        counts = np.diff(self.bounds)[order]
        bounds = bounds_of(counts)
        pieces = np.repeat(self.bounds[order] - bounds[:-1], counts) + np.arange(bounds[-1])
        return Rows(
            seq_len=self.seq_len,
            bounds=bounds,
            document=self.document[pieces],
            offset=self.offset[pieces],
            length=self.length[pieces],
        )


def rows_of(
    row: Column, document: Column, offset: Column, *, lengths: Column, seq_len: int
) -> Rows:
    """Rows from pieces in any order, `row` naming the one each belongs to; `lengths` of the pieces.

    Within a row pieces stand in the order of their documents, which is a shuffled one.
    """
    order = np.lexsort((offset, document, row))
    counts = np.bincount(row, minlength=0) if len(row) else np.zeros(0, dtype=np.int64)
    return Rows(
        seq_len=seq_len,
        bounds=bounds_of(counts),
        document=document[order],
        offset=offset[order],
        length=lengths[order],
    )


def columns(rows: Rows, *, layout: str, next_tokens: Column) -> tuple[NDArray[Any], NDArray[Any]]:
    """The rows as `layout.ROW` and their pieces as `layout.PIECE`.

    Layout "documents" finds tokens in the sequence of their document, "rows" in that of their row.
    """
    row = np.zeros(len(rows), dtype=ROW)
    counts = np.diff(rows.bounds)
    row["first"], row["pieces"] = rows.bounds[:-1], counts
    row["tokens"], row["cost"] = rows.tokens, rows.cost
    piece = np.zeros(len(rows.length), dtype=PIECE)
    piece["document"], piece["offset"] = rows.document, rows.offset
    piece["length"], piece["next"] = rows.length, next_tokens
    if layout == "rows":
        piece["sequence"] = np.repeat(np.arange(len(rows)), counts)
        piece["start"] = places_in_row(rows)
    else:
        piece["sequence"], piece["start"] = rows.document, rows.offset
    return row, piece


def places_in_row(rows: Rows) -> Column:
    """At which token of its row each piece begins [pieces]."""
    starts = bounds_of(rows.length)[:-1]
    firsts = starts[rows.bounds[:-1]] if len(rows) else starts
    return starts - np.repeat(firsts, np.diff(rows.bounds))


def _sums(values: Column, bounds: Column) -> Column:
    return np.diff(bounds_of(values)[bounds])
