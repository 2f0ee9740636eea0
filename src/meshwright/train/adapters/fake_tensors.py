"""Whether a tensor has values (torch 2.13): fake and meta ones have a shape alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    from torch import Tensor


def has_values(tensor: Tensor) -> bool:
    """Whether the tensor's values can be read."""
    return not isinstance(tensor, FakeTensor) and not tensor.is_meta
