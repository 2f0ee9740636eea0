"""Rows that are read by number, dealt to ranks in order and cut for context parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.loader.batch import IGNORED, PADDING, Batch, MicroBatch
from meshwright.data.loader.deal import in_order
from meshwright.data.loader.place import checked_place
from meshwright.data.loader.slices import fill_slice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.loader.place import Place

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Whole rows [rows, seq_len]; `documents` numbers the documents of each, None where one."""

    tokens: Numbers
    labels: Numbers
    positions: Numbers | None = None
    documents: NDArray[np.int32] | None = None


class Table(Protocol):
    """Rows by number. `count` is that of an epoch, None where there are endlessly many."""

    seq_len: int
    count: int | None

    @property
    def identity(self) -> Mapping[str, Any]: ...  # noqa: D102

    def number(self, samples: Numbers) -> Numbers:
        """The row of each sample."""
        ...

    def read(self, rows: Numbers) -> Read:
        """Rows by number."""
        ...


class Rows:
    """A source over a table."""

    def __init__(self, table: Table, place: Place, *, cp_slices: str) -> None:
        self._table = table
        self._place = checked_place(place, seq_len=table.seq_len, cp_slices=cp_slices)
        self._cp_slices = cp_slices

    @property
    def rows(self) -> int | None:
        """Rows of an epoch."""
        return self._table.count

    @property
    def identity(self) -> Mapping[str, Any]:
        """That of the table."""
        return self._table.identity

    def epochs_after(self, samples: int) -> tuple[float, ...]:
        """One number, 0 where there are no epochs."""
        return (samples / self._table.count if self._table.count else 0.0,)

    def make(self, first_sample: int, *, end: int | None = None) -> Batch:
        """This rank's part of a global batch."""
        place = self._place
        last = first_sample + place.global_batch_size
        samples = np.arange(first_sample, last)
        if end is not None:
            samples[samples >= end] = -1
        sizes = {"dp_size": place.dp_size, "micro_batch_size": place.micro_batch_size}
        mine = samples[in_order(len(samples), **sizes)[place.dp_rank]]
        return Batch(
            first_sample=first_sample,
            last_sample=last if end is None else min(last, end),
            micro_batches=tuple(self._micro_batch(part) for part in mine),
            imbalance=None,
        )

    def _micro_batch(self, samples: Numbers) -> MicroBatch:
        """The rows of some samples; sample -1 is a blank row."""
        blank = samples < 0
        rows = np.full_like(samples, -1)
        rows[~blank] = self._table.number(samples[~blank])
        read = self._table.read(np.where(blank, 0, rows))
        if blank.any():
            read.labels[blank] = IGNORED
            if read.documents is not None:
                read.documents[blank] = PADDING
        place = self._place
        return MicroBatch(
            samples=samples,
            rows=rows,
            tokens=self._sliced(read.tokens) if place.is_first else None,
            labels=self._sliced(read.labels) if place.is_last else None,
            position_ids=self._sliced(read.positions),
            document_ids=self._sliced(read.documents),
        )

    def _sliced(self, values: NDArray[Any] | None) -> Any:
        """This rank's slice of every row."""
        place = self._place
        if values is None or place.cp_size == 1:
            return values
        out = np.empty((len(values), values.shape[1] // place.cp_size), dtype=values.dtype)
        fill_slice(out, values, cp_rank=place.cp_rank, cp_size=place.cp_size, how=self._cp_slices)
        return out
