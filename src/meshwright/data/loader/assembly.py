"""Makes the micro-batches of one rank: which rows, and the arrays of them that it needs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.loader.arguments import MOST_TOKEN_COST, choice, flag, number
from meshwright.data.loader.batch import MicroBatch
from meshwright.data.loader.buffers import Buffers
from meshwright.data.loader.deal import imbalance, in_order, leveled
from meshwright.data.loader.place import checked_place
from meshwright.data.loader.reading import (
    Reader,
    fill_documents,
    fill_labels,
    fill_positions,
)
from meshwright.data.loader.slices import CP_SLICES, fill_slice

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from meshwright.data.loader.deal import Imbalance
    from meshwright.data.loader.place import Place
    from meshwright.data.loader.reading import Pieces
    from meshwright.data.loader.stream import Stream

    Numbers = NDArray[np.int64]

BALANCES = ("cost", "none")
DTYPES = ("int64", "int32")
TOKEN_COST = 12 * 4096.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What is made of rows. `token_cost` is the work of a token outside attention, in units of a
    squared token of attention: about 12 * hidden_size for a usual transformer layer, whose matrices
    take 24 * hidden_size^2 FLOPs a token and whose causal attention 2 * hidden_size * s^2 for s.
    """

    document_masks: bool = True
    cp_slices: str = "zigzag"
    balance: str = "cost"
    token_cost: float = TOKEN_COST
    dtype: str = "int64"
    mtp: bool = False  # multi-token prediction: the last stage embeds tokens too


@dataclass(frozen=True, slots=True)
class Dealt:
    """The rows of a rank in a step: [micro_batches, micro_batch_size]; -1 is a blank row."""

    samples: Numbers
    rows: Numbers
    imbalance: Imbalance | None


class Assembly:
    """Everything that one rank makes of a stream. Reads nothing before it must."""

    def __init__(self, stream: Stream, place: Place, form: Form) -> None:
        form = _checked(form)
        place = checked_place(place, seq_len=stream.seq_len, cp_slices=form.cp_slices)
        self.stream, self.place, self.form = stream, place, form
        self.reader = Reader(stream.folders)
        self._buffers = Buffers()
        self.needs_tokens = place.is_first or (place.is_last and form.mtp)
        self.needs_labels = place.is_last

    def __reduce__(self) -> tuple[Any, ...]:
        return Assembly, (self.stream, self.place, self.form)

    def deal(self, first_sample: int, *, end: int | None = None) -> Dealt:
        """The rank's part of the global batch that begins at a sample; blank from `end` on."""
        place = self.place
        samples = first_sample + np.arange(place.global_batch_size)
        if end is not None:
            samples[samples >= end] = -1
        rows = np.full_like(samples, -1)
        rows[samples >= 0] = self.stream.rows(samples[samples >= 0])
        sizes = {"dp_size": place.dp_size, "micro_batch_size": place.micro_batch_size}
        if self.form.balance == "none" or not self.form.document_masks:
            mine = in_order(len(rows), **sizes)[place.dp_rank]
            return Dealt(samples[mine], rows[mine], None)
        costs = self.reader.costs(rows) + self.form.token_cost * self.stream.seq_len
        dealt = leveled(costs, **sizes)
        mine = dealt[place.dp_rank]
        return Dealt(samples[mine], rows[mine], imbalance(costs, dealt))

    def micro_batches(self, samples: Numbers, rows: Numbers) -> tuple[MicroBatch, ...]:
        """The micro-batches of dealt rows [micro_batches, micro_batch_size]."""
        count, size = rows.shape
        seq_len = self.stream.seq_len
        arrays: dict[str, Any] = {}
        pieces = None
        if self._reads:
            pieces = self.reader.pieces(rows.ravel())
            arrays = self._arrays(pieces, rows=count * size)
        if not self.form.document_masks:
            positions = self._buffers.empty((count * size, seq_len), self.form.dtype)
            positions[:] = np.arange(seq_len)
            arrays["position_ids"] = positions
        arrays = {name: self._sliced(values) for name, values in arrays.items()}
        masks = self._masks(pieces, count=count) if self.form.document_masks and pieces else None
        return tuple(
            MicroBatch(
                samples=samples[number],
                rows=rows[number],
                **{k: v[number * size : (number + 1) * size] for k, v in arrays.items()},
                **(masks[number] if masks else {}),
            )
            for number in range(count)
        )

    @property
    def _reads(self) -> bool:
        """Whether this rank needs anything that is in the files."""
        return self.needs_tokens or self.needs_labels or self.form.document_masks

    def _arrays(self, pieces: Pieces, *, rows: int) -> dict[str, NDArray[Any]]:
        """What this rank needs of whole rows [rows, seq_len]."""
        shape, dtype = (rows, self.stream.seq_len), self.form.dtype
        arrays: dict[str, NDArray[Any]] = {}
        if self.needs_tokens or self.needs_labels:
            tokens = self._buffers.empty(shape, dtype)
            self.reader.fill_tokens(tokens, pieces)
            if self.needs_tokens:
                arrays["tokens"] = tokens
            if self.needs_labels:
                arrays["labels"] = self._buffers.empty(shape, dtype)
                fill_labels(arrays["labels"], tokens, pieces)
        if self.form.document_masks:
            arrays["position_ids"] = self._buffers.empty(shape, dtype)
            fill_positions(arrays["position_ids"], pieces)
            arrays["document_ids"] = self._buffers.empty(shape, np.int32)
            fill_documents(arrays["document_ids"], pieces)
        return arrays

    def _sliced(self, values: NDArray[Any]) -> NDArray[Any]:
        place = self.place
        if place.cp_size == 1:
            return values
        out = self._buffers.empty((len(values), self.stream.seq_len // place.cp_size), values.dtype)
        how = self.form.cp_slices
        fill_slice(out, values, cp_rank=place.cp_rank, cp_size=place.cp_size, how=how)
        return out

    def _masks(self, pieces: Pieces, *, count: int) -> list[dict[str, Any]]:
        """`cu_seqlens` and `max_seqlen` of each micro-batch."""
        tokens = self.place.micro_batch_size * self.stream.seq_len
        bounds = np.append(0, np.cumsum(pieces.length))
        firsts = np.searchsorted(bounds, tokens * np.arange(count + 1))
        longest = np.maximum.reduceat(pieces.length, firsts[:-1]).tolist()
        return [
            {
                "cu_seqlens": (bounds[first : last + 1] - bounds[first]).astype(np.int32),
                "max_seqlen": longest[number],
            }
            for number, (first, last) in enumerate(pairwise(firsts.tolist()))
        ]


def _checked(form: Form) -> Form:
    """The form; InvalidInput for a value that is none of its type or its choices."""
    return Form(
        document_masks=flag("document_masks", form.document_masks),
        cp_slices=choice("cp_slices", form.cp_slices, CP_SLICES),
        balance=choice("balance", form.balance, BALANCES),
        token_cost=number("token_cost", form.token_cost, most=MOST_TOKEN_COST),
        dtype=choice("dtype", form.dtype, DTYPES),
        mtp=flag("mtp", form.mtp),
    )
