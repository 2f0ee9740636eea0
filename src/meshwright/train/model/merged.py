"""A weight with its adapter added, while it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.model.lazy import Lazy, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """base + scaling * up @ down (arXiv 2106.09685, section 4.1), summed in fp32 at least.

    `base` is [out, in], `down` [rank, in], `up` [out, rank].
    """

    base: Lazy
    down: Lazy
    up: Lazy
    scaling: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the base."""
        return self.base.shape

    @property
    def dtype(self) -> str:
        """Of the base."""
        return self.base.dtype

    @property
    def places(self) -> tuple[str, ...]:
        """Files of all three."""
        return tuple(dict.fromkeys((*self.base.places, *self.down.places, *self.up.places)))

    def read_into(self, target: Tensor, start: Start) -> None:
        """The rows and columns of the block, merged."""
        rows, columns = target.shape
        rank = self.down.shape[0]
        wide = torch.promote_types(getattr(torch, self.dtype), torch.float32)
        base = torch.empty(rows, columns, dtype=wide)
        down = torch.empty(rank, columns, dtype=wide)
        up = torch.empty(rows, rank, dtype=wide)
        self.base.read_into(base, start)
        self.down.read_into(down, (0, start[1]))
        self.up.read_into(up, (start[0], 0))
        target.copy_(torch.addmm(base, up, down, alpha=self.scaling))
