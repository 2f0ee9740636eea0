"""How DTensor cuts a tensor: `_StridedShard`, made by FSDP2 over tensor parallelism, is private.

Source: torch 2.13, torch/distributed/tensor/placement_types.py. A strided shard along dim d says
that other mesh dims, further right, cut d into `split_factor` parts first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def cut_dim(placement: Any, ndim: int) -> int | None:
    """The tensor dim that a placement cuts, None where it cuts none; an error for partial sums."""
    if isinstance(placement, Replicate):
        return None
    if isinstance(placement, Shard | _StridedShard):
        return int(placement.dim) % ndim
    raise MeshwrightError(f"a parameter or state with the placement {placement} has no parts")


def in_order(
    placements: Sequence[Any], sizes: Sequence[int], ndim: int
) -> list[tuple[int, int, int]]:
    """(mesh dim, tensor dim, split factor) of every cut, in the order in which they are made.

    FSDP2 cuts what tensor parallelism has left of a dim, whole or not by its parts, and calls it
    strided by as many parts: only sizes that divide are the same cut the other way round.
    """
    cuts = [(axis, cut_dim(placement, ndim)) for axis, placement in enumerate(placements)]
    found = [(axis, dim) for axis, dim in cuts if dim is not None]
    first, last = [], []
    for axis, dim in found:
        factor = int(getattr(placements[axis], "split_factor", 1))
        right = [other for other, same in found if other > axis and same == dim]
        is_plain = not any(isinstance(placements[other], _StridedShard) for other in right)
        if factor > 1 and is_plain and factor == math.prod(sizes[other] for other in right):
            last.append((axis, dim, 1))
        else:
            first.append((axis, dim, factor))
    return [*first, *reversed(last)]


def kept(indices: NDArray[np.int64], *, factor: int, parts: int, place: int) -> NDArray[np.int64]:
    """Of `indices` along the cut dim those that the rank at `place` of `parts` holds, in order."""
    groups = _chunks(indices, factor)
    return np.concatenate([_chunk(group, parts, place) for group in groups] or [indices[:0]])


def _chunks(indices: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    return [_chunk(indices, count, i) for i in range(count)]


def _chunk(indices: NDArray[np.int64], count: int, place: int) -> NDArray[np.int64]:
    """Part `place` of torch.chunk(indices, count), empty where chunk makes fewer."""
    size = -(-len(indices) // count)
    return indices[place * size : (place + 1) * size]
