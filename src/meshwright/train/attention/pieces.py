"""Where the documents of packed rows begin, brought to the host.

Attention then computes each document on its own and needs no mask. It costs one small copy to the
host a micro-batch, which waits for the device; a mask over all scores costs far more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.train.adapters.fake_tensors import has_values

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.tiles import Pieces


def pieces_of(documents: Tensor) -> Pieces | None:
    """For every whole row of `documents` [b, s] where a new number begins, then s.

    A document's tokens lie together, padding after them. None for tensors without values (fake
    ones), whose documents only a mask can tell.
    """
    if not has_values(documents):
        return None
    rows, tokens = documents.shape
    begins: list[list[int]] = [[0] for _ in range(rows)]
    changes = documents[:, 1:] != documents[:, :-1]
    for row, place in changes.nonzero().tolist():
        begins[row].append(place + 1)
    return tuple((*starts, tokens) for starts in begins)


def is_packed(pieces: Pieces) -> bool:
    """Whether any row holds more than one document."""
    return any(len(starts) > 2 for starts in pieces)
