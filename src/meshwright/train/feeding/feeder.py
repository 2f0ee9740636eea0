"""Steps of one rank as tensors, made ahead of time by a thread and moved to the device."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.loader.batch import IGNORED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from typing import Self

    from torch import Tensor

    from meshwright.data.loader.batch import Batch, MicroBatch
    from meshwright.train.feeding.source import Source

_FORMAT = 1
_NAMES = {  # of a micro-batch of the loader, and of the engine
    "tokens": "tokens",
    "labels": "labels",
    "position_ids": "position_ids",
    "document_ids": "documents",
}


@dataclass(frozen=True, kw_only=True)
class Fed:
    """A step of this rank: samples `first_sample` up to `last_sample`, those of all ranks.

    `labels` counts this rank's labels that are not ignored, `wait_s` how long the step was waited
    for.
    """

    first_sample: int
    last_sample: int
    micro_batches: tuple[dict[str, Tensor], ...]
    labels: int
    wait_s: float = 0.0


class Feeder:
    """Step after step from a sample on; a context manager that stops its thread.

    `prefetch` steps are made ahead (0: none). `end` is the sample before which it stops, for
    sources that do not go round; rows from there on are blank.
    """

    def __init__(
        self,
        source: Source,
        *,
        device: torch.device,
        global_batch_size: int,
        prefetch: int = 2,
        end: int | None = None,
    ) -> None:
        self.source = source
        self.consumed = 0
        self._device = device
        self._size = global_batch_size
        self._prefetch = prefetch
        self._end = end
        self._thread: ThreadPoolExecutor | None = None
        self._coming: deque[Future[Fed]] = deque()

    def next(self) -> Fed:
        """The next step; not to be asked for when `is_over`."""
        asked_s = time.perf_counter()
        made = self._next_made()
        micro_batches = made.micro_batches
        if self._device.type != "cpu":
            micro_batches = tuple(self._moved(batch) for batch in micro_batches)
        self.consumed = made.last_sample
        return Fed(
            first_sample=made.first_sample,
            last_sample=made.last_sample,
            micro_batches=micro_batches,
            labels=made.labels,
            wait_s=time.perf_counter() - asked_s,
        )

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self._ends_before(self.consumed)

    def seek(self, sample: int) -> None:
        """Goes on from a sample; what was made ahead is dropped."""
        self._forget()
        self.consumed = sample

    def state(self) -> dict[str, Any]:
        """How far training has come, as plain values; steps made ahead are not counted."""
        return {
            "format": _FORMAT,
            "consumed_samples": self.consumed,
            "epochs": [round(epochs, 6) for epochs in self.source.epochs_after(self.consumed)],
            "source": dict(self.source.identity),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; MeshwrightError where the state is of other data or another seed."""
        then, now = state.get("source"), dict(self.source.identity)
        if state.get("format") != _FORMAT or not isinstance(then, dict):
            raise MeshwrightError(
                "the checkpoint says nothing of the data that it was trained on",
                hint="start a new run from its weights",
            )
        for key in sorted({*then, *now}):
            if then.get(key) != now.get(key):
                raise MeshwrightError(
                    f"the checkpoint was trained on other data: {key} was {then.get(key)!r} and "
                    f"is {now.get(key)!r}",
                    hint="resume with the same --data and --seed, or start a new run from the "
                    "weights",
                )
        self.seek(int(state["consumed_samples"]))

    def close(self) -> None:
        """Stops the thread; a later `next` starts another."""
        self._forget()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_made(self) -> Fed:
        if self._prefetch <= 0:
            return self._make(self.consumed)
        self._order_ahead()
        try:
            return self._coming.popleft().result()
        except BaseException:  # what follows would be a gap
            self._forget()
            raise

    def _order_ahead(self) -> None:
        """Has the thread make steps up to `prefetch` beyond the one wanted now."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="feeder")
        while len(self._coming) <= self._prefetch:
            first = self.consumed + len(self._coming) * self._size
            if self._ends_before(first):
                break
            self._coming.append(self._thread.submit(self._make, first))

    def _ends_before(self, first_sample: int) -> bool:
        return self._end is not None and first_sample >= self._end

    def _make(self, first_sample: int) -> Fed:
        """A step in the host's memory, pinned where it goes to another device."""
        batch = self.source.make(first_sample, end=self._end)
        pinned = self._device.type == "cuda"
        return Fed(
            first_sample=batch.first_sample,
            last_sample=batch.last_sample,
            micro_batches=tuple(_tensors(m, pinned=pinned) for m in batch.micro_batches),
            labels=_labels_in(batch),
        )

    def _moved(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: t.to(self._device, non_blocking=True) for name, t in batch.items()}

    def _forget(self) -> None:
        """Drops what was made ahead, and waits for what is being made."""
        while self._coming:
            coming = self._coming.popleft()
            if not coming.cancel():
                coming.exception()


def _tensors(micro_batch: MicroBatch, *, pinned: bool) -> dict[str, Tensor]:
    """The arrays of a micro-batch that this rank has, in the engine's words."""
    arrays = {ours: getattr(micro_batch, theirs) for theirs, ours in _NAMES.items()}
    tensors = {name: torch.from_numpy(a) for name, a in arrays.items() if a is not None}
    return {name: t.pin_memory() for name, t in tensors.items()} if pinned else tensors


def _labels_in(batch: Batch) -> int:
    return sum(
        int((micro.labels != IGNORED).sum())
        for micro in batch.micro_batches
        if micro.labels is not None
    )
