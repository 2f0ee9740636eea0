"""Context parallelism: attention over a sequence whose tokens lie on several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, kw_only=True)
class Context:
    """How the rows of a micro-batch are cut over the ranks of `group`.

    `method` is a `ContextParallel`. `positions` [size, s_local] are every rank's places in the
    row, `documents` [b, size, s_local] every rank's documents, None where rows hold one each.
    """

    group: ProcessGroup
    method: int
    positions: Tensor
    documents: Tensor | None = None
