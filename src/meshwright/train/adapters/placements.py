"""How DTensor cuts a tensor: `_StridedShard`, made by FSDP2 over tensor parallelism, is private.

Source: torch 2.13, torch/distributed/tensor/placement_types.py. A strided shard along dim d says
that other mesh dims, further right, cut d into `split_factor` parts first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def cut_dim(placement: Any, ndim: int) -> int | None:
    """The tensor dim that a placement cuts, None where it cuts none; an error for partial sums."""
    if isinstance(placement, Replicate):
        return None
    if isinstance(placement, Shard | _StridedShard):
        return int(placement.dim) % ndim
    raise MeshwrightError(f"a parameter or state with the placement {placement} has no parts")


def kept(
    placement: Any, indices: NDArray[np.int64], *, parts: int, place: int
) -> NDArray[np.int64]:
    """Of `indices` along the cut dim those that the rank at `place` of `parts` holds, in order."""
    factor = int(placement.split_factor) if isinstance(placement, _StridedShard) else 1
    groups = _chunks(indices, factor)
    return np.concatenate([_chunk(group, parts, place) for group in groups] or [indices[:0]])


def _chunks(indices: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    return [_chunk(indices, count, i) for i in range(count)]


def _chunk(indices: NDArray[np.int64], count: int, place: int) -> NDArray[np.int64]:
    """Part `place` of torch.chunk(indices, count), empty where chunk makes fewer."""
    size = -(-len(indices) // count)
    return indices[place * size : (place + 1) * size]
