"""What ranks tell each other once a step, behind the computation: whether to stop, and extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Over all ranks: whether one was asked to stop, the longest wait, the most memory."""

    stop: bool
    wait_s: float
    memory_bytes: float


class Agreement:
    """One small all-reduce a step over gloo, started before the step and read after it.

    It needs no device and no kernel, so it costs nothing where the step is long enough to hide it.
    """

    def __init__(self) -> None:
        self._alone = dist.get_world_size() == 1
        self._group = None if self._alone else dist.new_group(backend="gloo")
        self._told: Tensor | None = None
        self._work: Any = None

    def say(self, *, stop: bool, wait_s: float, memory_bytes: float) -> None:
        """Begins to share what this rank has to say; every rank calls it once a step."""
        self._told = torch.tensor([float(stop), wait_s, memory_bytes], dtype=torch.float64)
        if not self._alone:
            self._work = dist.all_reduce(
                self._told, op=dist.ReduceOp.MAX, group=self._group, async_op=True
            )

    def hear(self) -> Heard:
        """What all ranks said."""
        if self._told is None:
            raise RuntimeError("nothing was said")
        if self._work is not None:
            self._work.wait()
        stop, wait_s, memory_bytes = self._told.tolist()
        return Heard(stop=stop > 0, wait_s=wait_s, memory_bytes=memory_bytes)
