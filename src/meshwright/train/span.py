"""What attention needs to know of the tokens of a micro-batch, handed through the model as `span`.

It travels as a keyword argument, so that recomputation in the backward pass sees the span of its
own micro-batch and not of a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.context import Context


@dataclass(frozen=True, kw_only=True)
class Span:
    """Tokens of this rank's slice of the rows.

    `positions` [s] are their places in the whole row, the same for every row of the micro-batch;
    `documents` [b, s] numbers the documents of packed rows, -1 for padding, None where every row is
    one document. `context` says how the sequence is cut over ranks, None where it is whole (then
    the tokens are in order).

    `pieces` says the same on the host, which spares attention all masks: for every whole row where
    its documents begin, then its length. Where it is there, `documents` is not read. Of rows that
    are cut the context has both.
    """

    positions: Tensor
    documents: Tensor | None = None
    context: Context | None = None
    pieces: tuple[tuple[int, ...], ...] | None = None
