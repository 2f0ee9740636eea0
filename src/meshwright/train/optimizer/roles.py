"""What a parameter is to an optimizer, by its name and shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.train.stage import EMBEDDING, HEAD

if TYPE_CHECKING:
    from torch import Tensor


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: to matrices, not to norms and biases.

    The biases of fused experts are two-dimensional, a row an expert, and are biases all the same.
    """
    return parameter.ndim > 1 and not name.endswith("bias")


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether it is one matrix, or one an expert, of a layer: not an embedding, not the head."""
    return decays(name, parameter) and name not in (EMBEDDING, HEAD)
