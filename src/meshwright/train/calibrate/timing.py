"""How long a call takes, in several samples."""

from __future__ import annotations

import statistics
import time
from collections import deque
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_SAMPLE_S = 2e-3  # a shorter call is repeated within a sample
HELD_BYTES, MOST_HELD = 2**26, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Times calls on one device; `together` makes all ranks of the world start at once.

    At least `samples` are taken, and as many as fit in `budget_s`. `local` calls wait for no other
    rank. A CPU rank of one thread reads what its thread used of a core, and takes the median: a
    core that another program took meanwhile, and waiting for other ranks, do not count. Where
    `wall` time is wanted, and everywhere else, the least counts: others can only add to it.
    """

    device: str
    samples: int = 3
    budget_s: float = 0.05
    together: bool = True
    local: bool = True
    wall: bool = False

    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds of one call.

        What calls return lives on until HELD_BYTES more have come, as activations and gradients do:
        results are written where no cache has them.
        """
        self._meet()
        held: deque[object] = deque([call()])
        held = deque(held, maxlen=_count_held(held[0]))
        first = self._once(call, 1, held)
        repeats = self._agreed(max(1, round(LEAST_SAMPLE_S / max(first, 1e-7))))
        taken_s = max(first * repeats, LEAST_SAMPLE_S)
        count = self._agreed(max(self.samples, int(self.budget_s / taken_s)))
        times = [self._once(call, repeats, held) for _ in range(count)]
        return (min(times) if self._is_wall else statistics.median(times)) / repeats

    def _once(self, call: Callable[[], object], repeats: int, held: deque[object]) -> float:
        """Seconds of one sample."""
        if not self.local:
            self._meet()
        self._wait()
        now = time.perf_counter if self._is_wall else time.thread_time
        begin = now()
        for _ in range(repeats):
            held.append(call())
        self._wait()
        return now() - begin

    def _meet(self) -> None:
        """Waits for the other ranks."""
        if self.together and dist.is_initialized() and dist.get_world_size() > 1:
            dist.barrier()

    def _agreed(self, count: int) -> int:
        """The largest of the ranks' numbers where all must take part in each sample."""
        if self.local or not dist.is_initialized() or dist.get_world_size() == 1:
            return count
        value = torch.tensor([count], device=self.device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return int(value.item())

    @property
    def _is_wall(self) -> bool:
        """Whether seconds are read from the clock on the wall."""
        alone = self.device == "cpu" and torch.get_num_threads() == 1
        return self.wall or not alone

    def _wait(self) -> None:
        """Until the device has done what it was asked for."""
        if self.device != "cpu":
            torch.get_device_module(self.device).synchronize()


def _count_held(result: object) -> int:
    """How many results of this kind make HELD_BYTES."""
    tensors = result if isinstance(result, tuple) else (result,)
    size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
    count: int = min(max(HELD_BYTES // max(size, 1), 1), MOST_HELD)
    return count
