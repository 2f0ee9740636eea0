"""How long a call takes: the fastest of several samples, all ranks starting each together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_SAMPLE_S = 2e-3  # a shorter call is repeated within a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Times calls on one device; `together` makes all ranks of the world start at once.

    At least `samples` are taken, and as many as fit in `budget_s`. The least counts: whatever else
    the machine does can only add to a time. `local` calls wait for no other rank. Unless `wall`
    time is wanted, a CPU rank of one thread reads what its thread used of a core: a core that
    another program took meanwhile, and waiting for other ranks, do not count.
    """

    device: str
    samples: int = 3
    budget_s: float = 0.05
    together: bool = True
    local: bool = True
    wall: bool = False

    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds of one call."""
        self._meet()
        first = self._once(call, 1)
        second = self._once(call, 1)
        repeats = self._agreed(max(1, round(LEAST_SAMPLE_S / max(second, 1e-7))))
        taken_s = max(min(first, second) * repeats, LEAST_SAMPLE_S)
        count = self._agreed(max(self.samples, int(self.budget_s / taken_s)))
        return min(self._once(call, repeats) for _ in range(count)) / repeats

    def _once(self, call: Callable[[], object], repeats: int) -> float:
        """Seconds of one sample; what the calls return lives on, as activations do."""
        if not self.local:
            self._meet()
        self._wait()
        now = self._now
        begin = now()
        kept = [call() for _ in range(repeats)]
        self._wait()
        end = now()
        del kept
        return end - begin

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
    def _now(self) -> Callable[[], float]:
        """What seconds are read from."""
        alone = self.device == "cpu" and torch.get_num_threads() == 1
        return time.thread_time if alone and not self.wall else time.perf_counter

    def _wait(self) -> None:
        """Until the device has done what it was asked for."""
        if self.device != "cpu":
            torch.get_device_module(self.device).synchronize()
