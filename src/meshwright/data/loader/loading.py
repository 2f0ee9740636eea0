"""The loader: batch after batch for one rank, made ahead of time by a thread."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.data.loader.arguments import MOST_PREFETCHED, MOST_SAMPLES, flag, whole
from meshwright.data.loader.assembly import TOKEN_COST, Assembly, Form
from meshwright.data.loader.batch import Batch
from meshwright.data.loader.place import Place
from meshwright.data.loader.state import consumed_of, state_of
from meshwright.data.loader.stream import open_stream
from meshwright.data.loader.waits import Waits, after

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from typing import Self


class Loader:
    """An iterator over the steps of one rank, `Batch` by `Batch`.

    All ranks open it with the same arguments but their own ranks. Global batch k is made of samples
    [k * global_batch_size, (k + 1) * global_batch_size) of a stream that knows nothing of ranks, so
    that a run may go on with another world size, micro-batch or global batch; `state_dict` then
    `load_state_dict` lose and repeat nothing. It ends after `samples` samples, or `epochs` epochs
    of a folder, or never; the last batch is filled up with blank rows (sample -1, every label
    ignored), or left out under `drop_last`.

    `prefetch` batches are made ahead by a thread (0: none, when asked for); `waits` tells how long
    `next` had to wait. Close it, or use it as a context manager, to stop the thread early.

    Raises InvalidInput or MeshwrightError for an unfinished or damaged folder, a batch that cannot
    be divided, rows that cannot be sliced, too few rows, and a state of another stream.
    """

    def __init__(
        self,
        data: Path | str,
        *,
        global_batch_size: int,
        micro_batch_size: int = 1,
        dp_rank: int = 0,
        dp_size: int = 1,
        cp_rank: int = 0,
        cp_size: int = 1,
        pp_rank: int = 0,
        pp_size: int = 1,
        split: str = "train",
        seed: int = 0,
        shuffle: bool = True,
        document_masks: bool = True,
        cp_slices: str = "zigzag",
        balance: str = "cost",
        token_cost: float = TOKEN_COST,
        dtype: str = "int64",
        mtp: bool = False,
        samples: int | None = None,
        epochs: int | None = None,
        drop_last: bool = False,
        prefetch: int = 2,
    ) -> None:
        place = Place(
            global_batch_size=global_batch_size,
            micro_batch_size=micro_batch_size,
            dp_rank=dp_rank,
            dp_size=dp_size,
            cp_rank=cp_rank,
            cp_size=cp_size,
            pp_rank=pp_rank,
            pp_size=pp_size,
        )
        form = Form(
            document_masks=document_masks,
            cp_slices=cp_slices,
            balance=balance,
            token_cost=token_cost,
            dtype=dtype,
            mtp=mtp,
        )
        stream = open_stream(data, split=split, seed=seed, shuffle=shuffle)
        self.assembly = Assembly(stream, place, form)
        self.end = end_of(self.assembly, samples=samples, epochs=epochs, drop_last=drop_last)
        self.consumed_samples = 0
        self.waits = Waits()
        self._prefetch = whole("prefetch", prefetch, least=0, most=MOST_PREFETCHED)
        self._thread: ThreadPoolExecutor | None = None
        self._coming: deque[Future[Batch]] = deque()
        self._began_s = 0.0

    def __len__(self) -> int:
        """Steps from the first sample to the end; TypeError when there is no end."""
        if self.end is None:
            raise TypeError("this loader has no end: give it samples or epochs")
        return -(-self.end // self.assembly.place.global_batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        asked_s = time.perf_counter()
        batch = self._next_made()
        got_s = time.perf_counter()
        if self.waits.steps == 0:
            self._began_s = got_s
        self.waits = after(self.waits, asked_s=asked_s, got_s=got_s, began_s=self._began_s)
        self.consumed_samples = batch.last_sample
        return batch

    def state_dict(self) -> dict[str, Any]:
        """How far this loader has come, batches that were only prefetched left out; plain JSON."""
        return state_of(self.assembly.stream, self.consumed_samples)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; MeshwrightError when the state is of another seed, split or data."""
        consumed = consumed_of(state, self.assembly.stream)
        self._forget()
        self.consumed_samples = consumed

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

    def _next_made(self) -> Batch:
        if self._prefetch <= 0:
            return make(self.assembly, self._checked(self.consumed_samples), end=self.end)
        self._order_ahead()
        if not self._coming:
            raise StopIteration
        try:
            return self._coming.popleft().result()
        except BaseException:  # what follows would be a gap
            self._forget()
            raise

    def _order_ahead(self) -> None:
        """Has the thread make batches up to `prefetch` beyond the one wanted now."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="meshwright-loader")
        size = self.assembly.place.global_batch_size
        while len(self._coming) <= self._prefetch:
            first = self.consumed_samples + len(self._coming) * size
            if self.end is not None and first >= self.end:
                break
            self._coming.append(self._thread.submit(make, self.assembly, first, end=self.end))

    def _checked(self, first_sample: int) -> int:
        if self.end is not None and first_sample >= self.end:
            raise StopIteration
        return first_sample

    def _forget(self) -> None:
        """Drops what was made ahead, and waits for what is being made."""
        while self._coming:
            coming = self._coming.popleft()
            if not coming.cancel():
                coming.exception()


def make(assembly: Assembly, first_sample: int, *, end: int | None) -> Batch:
    """The batch that begins at a sample."""
    dealt = assembly.deal(first_sample, end=end)
    last = first_sample + assembly.place.global_batch_size
    return Batch(
        first_sample=first_sample,
        last_sample=last if end is None else min(last, end),
        micro_batches=assembly.micro_batches(dealt.samples, dealt.rows),
        imbalance=dealt.imbalance,
    )


def end_of(
    assembly: Assembly, *, samples: int | None, epochs: int | None, drop_last: bool
) -> int | None:
    """The sample before which a loader stops, None for never; MeshwrightError when none is left."""
    stream, batch = assembly.stream, assembly.place.global_batch_size
    drop_last = flag("drop_last", drop_last)
    if epochs is not None:
        epochs = whole("epochs", epochs, least=1, most=MOST_SAMPLES)
        if len(stream.folders) > 1 or samples is not None:
            raise MeshwrightError(
                "epochs counts those of one folder, and only where samples says nothing",
                hint="give samples=N instead: the sources of a blend end at different times",
            )
        samples = epochs * stream.epochs[0].size
    held = sum(epochs.size for epochs in stream.epochs)
    if held < batch:
        raise MeshwrightError(
            f"the data has {held:,} rows, fewer than a batch of {batch:,}",
            hint=f"global_batch_size={held} at most, or more data",
        )
    if samples is None:
        return None
    samples = whole("samples", samples, least=1, most=MOST_SAMPLES)
    end = samples // batch * batch if drop_last else samples
    if end < 1:
        raise MeshwrightError(
            f"{samples:,} samples make no batch of {batch:,}",
            hint=f"samples={batch} at least, or drop_last=False",
        )
    return end
