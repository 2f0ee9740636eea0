"""Sums of small tensors over several process groups, all of a kind in one exchange."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def summed(values: Sequence[tuple[Tensor, tuple[Any, ...]]]) -> list[Tensor]:
    """Each tensor summed over each of its groups; what has none stays as it is.

    All ranks of a group call it with tensors of the same shapes in the same order.
    """
    kinds: dict[Any, list[int]] = defaultdict(list)
    results = [value for value, _ in values]
    for index, (value, groups) in enumerate(values):
        if groups:
            kinds[groups, value.dtype, value.device].append(index)
    for (groups, *_), indices in kinds.items():
        flat = torch.cat([results[i].flatten() for i in indices])
        for group in groups:
            dist.all_reduce(flat, group=group)
        for i, part in zip(indices, flat.split([results[i].numel() for i in indices]), strict=True):
            results[i] = part.view(results[i].shape)
    return results
