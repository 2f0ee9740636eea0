"""Which elements of a whole tensor this rank holds, whatever it is cut by.

A share is a few boxes: one for most layouts, several where a rank holds pieces that do not touch
(a fused gate and up projection cut over tp). Everything that moves values between files, seeds and
ranks works on boxes and knows of no axis.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from torch.distributed.tensor import DTensor

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.train.adapters.placements import in_order, kept

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Run = tuple[int, int, int]  # first index in the whole tensor, first in the rank's part, length


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A block of a tensor: where it starts in the whole one and in this rank's part, its size."""

    start: tuple[int, ...]
    local: tuple[int, ...]
    size: tuple[int, ...]

    def of(self, part: Tensor) -> Tensor:
        """The block as a view of this rank's part."""
        slices = tuple(slice(o, o + n) for o, n in zip(self.local, self.size, strict=True))
        return part[slices]

    @property
    def whole(self) -> tuple[slice, ...]:
        """The block as slices of the whole tensor."""
        return tuple(slice(o, o + n) for o, n in zip(self.start, self.size, strict=True))


def part_of(tensor: Tensor) -> Tensor:
    """This rank's part, sharing memory with `tensor` and outside of autograd."""
    part: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return part.detach()


def boxes_of(tensor: Tensor) -> tuple[Box, ...]:
    """The boxes that this rank holds; none where its part is empty."""
    runs = [_runs(indices) for indices in _indices(tensor)]
    boxes = tuple(
        Box(
            start=tuple(run[0] for run in chosen),
            local=tuple(run[1] for run in chosen),
            size=tuple(run[2] for run in chosen),
        )
        for chosen in itertools.product(*runs)
    )
    part = part_of(tensor)
    if sum(int(np.prod(box.size, dtype=np.int64)) for box in boxes) != part.numel():
        layout = getattr(tensor, "placements", "no mesh")
        raise MeshwrightError(f"a part of shape {tuple(part.shape)} does not fit {layout}")
    return boxes


def _indices(tensor: Tensor) -> list[NDArray[np.int64]]:
    """Along every dim, the indices in the whole tensor of what this rank holds."""
    held = [np.arange(size, dtype=np.int64) for size in tensor.shape]
    if not isinstance(tensor, DTensor):
        return held
    mesh = tensor.device_mesh
    sizes = [mesh.size(axis) for axis in range(mesh.ndim)]
    for axis, dim, factor in in_order(tensor.placements, sizes, len(held)):
        place = mesh.get_local_rank(axis)
        held[dim] = kept(held[dim], factor=factor, parts=sizes[axis], place=place)
    return held


def _runs(indices: NDArray[np.int64]) -> list[Run]:
    """Consecutive indices together."""
    if not len(indices):
        return []
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    starts = [0, *breaks.tolist(), len(indices)]
    return [(int(indices[a]), a, b - a) for a, b in itertools.pairwise(starts)]
