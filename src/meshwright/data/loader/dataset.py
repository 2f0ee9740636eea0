"""Shards for torch's own DataLoader; the only file here that needs torch.

    DataLoader(StepDataset("shards/", ...), batch_size=None, num_workers=2)       # as trained on
    DataLoader(RowDataset("shards/"), batch_size=4, collate_fn=collate, shuffle=True)

`StepDataset` serves what `Loader` serves, micro-batch after micro-batch, with the same state.
`RowDataset` is a plain map of rows, for evaluation and for samplers of one's own. Tensors share the
memory of the arrays they come from.
"""

from __future__ import annotations

import math
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.loader.assembly import Assembly, Form
from meshwright.data.loader.loading import Loader
from meshwright.data.loader.place import Place
from meshwright.data.loader.state import MOST, consumed_of, state_of
from meshwright.data.loader.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from meshwright.data.loader.batch import MicroBatch

    Tensors = dict[str, Any]

_ARRAYS = (
    "tokens", "labels", "loss_mask", "position_ids", "document_ids", "cu_seqlens", "samples", "rows"
)  # fmt: skip


def tensors_of(micro: MicroBatch) -> Tensors:
    """The arrays of a micro-batch as tensors, by name, without copies; absent ones are left out.

    `max_seqlen` is a whole number, there whenever `cu_seqlens` is.
    """
    arrays = {name: getattr(micro, name) for name in _ARRAYS}
    found: Tensors = {
        name: torch.from_numpy(array) for name, array in arrays.items() if array is not None
    }
    if micro.cu_seqlens is not None:
        found["max_seqlen"] = micro.max_seqlen
    return found


class RowDataset(Dataset[Any]):
    """Rows of a folder or of a blend's folders one after another, in the order of the files.

    An item is what `tensors_of` gives for one row, [seq_len] instead of [1, seq_len].
    """

    def __init__(
        self,
        data: Path | str,
        *,
        split: str = "train",
        document_masks: bool = True,
        dtype: str = "int64",
    ) -> None:
        stream = open_stream(data, split=split, shuffle=False)
        place = Place(global_batch_size=1, micro_batch_size=1)
        form = Form(document_masks=document_masks, dtype=dtype, balance="none")
        self.assembly = Assembly(stream, place, form)
        self.rows = sum(epochs.size for epochs in stream.epochs)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> Tensors:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Tensors]:
        """Several rows, read together: what DataLoader asks for when it makes batches."""
        numbers = np.array(rows, dtype=np.int64).reshape(-1, 1)
        if ((numbers < -self.rows) | (numbers >= self.rows)).any():
            raise IndexError(f"rows {min(rows)} to {max(rows)} of {self.rows}")
        numbers = np.where(numbers < 0, numbers + self.rows, numbers)
        return [_row(micro) for micro in self.assembly.micro_batches(numbers, numbers)]


def collate(rows: Sequence[Tensors]) -> Tensors:
    """A micro-batch of rows of a `RowDataset`; `cu_seqlens` run on from row to row."""
    joined: Tensors = {
        name: torch.stack([row[name] for row in rows])
        for name in rows[0]
        if name not in ("cu_seqlens", "max_seqlen")
    }
    if "cu_seqlens" in rows[0]:
        seq_len = int(rows[0]["cu_seqlens"][-1])
        ends = [row["cu_seqlens"][1:] + seq_len * place for place, row in enumerate(rows)]
        joined["cu_seqlens"] = torch.cat([rows[0]["cu_seqlens"][:1], *ends])
        joined["max_seqlen"] = max(row["max_seqlen"] for row in rows)
    return joined


class StepDataset(IterableDataset[Any]):
    """The micro-batches of one rank, each as tensors by name; takes the arguments of `Loader`.

    Under DataLoader give batch_size=None. With several workers each makes every n-th micro-batch,
    and DataLoader puts them back in order. `state_dict` and `load_state_dict` are what torchdata's
    StatefulDataLoader asks each worker for. With torch's own DataLoader and workers, which keep
    their progress to themselves, use `state_after(steps)`.
    """

    def __init__(self, data: Path | str, **options: Any) -> None:
        with Loader(data, **{**options, "prefetch": 0}) as loader:
            self.assembly, self.end = loader.assembly, loader.end
        self._start = 0  # the sample at which numbering of micro-batches begins
        self._origin = 0  # the micro-batch at which all workers began
        self._given = 0  # micro-batches that this process has come past
        self._finished = False

    def __iter__(self) -> Iterator[Tensors]:
        if self._finished:
            self._start, self._origin, self._given, self._finished = 0, 0, 0, False
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        place = self.assembly.place
        while True:
            step = self._given // place.micro_batches
            first = self._start + step * place.global_batch_size
            if self.end is not None and first >= self.end:
                break
            dealt = self.assembly.deal(first, end=self.end)
            for inside in range(self._given % place.micro_batches, place.micro_batches):
                self._given += 1
                if (self._given - 1 - self._origin) % workers == number:
                    chosen = slice(inside, inside + 1)
                    made = self.assembly.micro_batches(dealt.samples[chosen], dealt.rows[chosen])
                    yield tensors_of(made[0])
        self._finished = True

    def __len__(self) -> int:
        """Micro-batches; TypeError when there is no end."""
        if self.end is None:
            raise TypeError("this data set has no end: give it samples or epochs")
        place = self.assembly.place
        return -(-(self.end - self._start) // place.global_batch_size) * place.micro_batches

    def state_dict(self) -> dict[str, Any]:
        """How far this process has come; plain JSON.

        Other ranks may take it up where a step is complete, which the state of one of several
        workers only tells where they are fewer than the micro-batches of a step. Only a worker in
        the place of the one that gave it may otherwise.
        """
        state = self.state_after(self._given // self.assembly.place.micro_batches)
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        within = _Within(
            start=self._start,
            origin=self._origin,
            given=self._given,
            next=self._given + (number - self._given + self._origin) % workers,
            workers=workers,
            of=_shape(self.assembly.place),
        )
        return {**state, "within": asdict(within)}

    def state_after(self, steps: int) -> dict[str, Any]:
        """The state after so many complete steps from where iteration begins."""
        consumed = self._start + steps * self.assembly.place.global_batch_size
        end = consumed if self.end is None else min(consumed, self.end)
        return state_of(self.assembly.stream, end)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; MeshwrightError when the state is of another stream, or lies within
        a step of other ranks.
        """
        place = self.assembly.place
        consumed = consumed_of(state, self.assembly.stream)
        within = _within(state)
        self._finished = False
        if within.of == _shape(place):
            self._start, self._given = within.start, within.given
            self._origin = within.origin if get_worker_info() else within.given
        else:
            self._start, self._origin, self._given = consumed + _completing(within), 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Within:
    """How far a process has come, by micro-batch; `of` is what must be equal to go on there."""

    start: int = 0
    origin: int = 0
    given: int = 0
    next: int = 0  # the first from `given` on that it gives itself: others give those between
    workers: int = 1
    of: list[int] = field(default_factory=lambda: [1])


def _completing(within: _Within) -> int:
    """Samples from the last complete step of this process to where all of them complete one.

    All workers together have come to some micro-batch from `given` to `next`. If those of every
    worker hold the end of a step, and steps are longer than there are workers, it is that end.
    The message says what to do as well: of an error in a worker torch passes on no more.
    """
    step, advice = within.of[0], "take the state of a complete step: state_after(steps)"
    end = -(-within.given // step) * step
    if 1 < within.workers >= step:
        raise MeshwrightError(
            f"the state of one of {within.workers} workers does not tell to other ranks or batches "
            f"which steps of {step} micro-batches are complete; {advice}",
            hint=f"{advice}, or use fewer workers than a step has micro-batches",
        )
    if end > within.next:
        raise MeshwrightError(
            f"the state lies within a step of other ranks or batches, at micro-batch "
            f"{within.given % step} of {step}; {advice}",
            hint=advice,
        )
    return (end - within.given // step * step) // step * math.prod(within.of[:3])


def _within(state: Mapping[str, Any]) -> _Within:
    """That part of a state; the beginning of a step where there is none."""
    found = state.get("within", {})
    try:
        within = _Within(**found)
        numbers = [within.start, within.origin, within.given, within.next, within.workers - 1]
        numbers += [within.of[0] - 1, *within.of]
    except (TypeError, IndexError):
        numbers = [-1]
    if any(type(number) is not int or not 0 <= number <= MOST for number in numbers):
        raise MeshwrightError(
            f"within = {found!r} is no place in a step", hint="pass on what state_dict() returned"
        )
    return within


def _row(micro: MicroBatch) -> Tensors:
    """The tensors of a micro-batch of one row, without the dim of rows."""
    return {
        name: value if name in ("cu_seqlens", "max_seqlen") else value[0]
        for name, value in tensors_of(micro).items()
    }


def _shape(place: Place) -> list[int]:
    """What must be equal for a state within a step; micro-batches of a step come first."""
    return [place.micro_batches, place.micro_batch_size, place.dp_size, place.dp_rank]
