"""Context parallelism: attention over a sequence whose tokens lie on several ranks.

`making` says how the rows of a micro-batch are cut, `methods` chooses one of `gather`, `ulysses`,
`ring` and `hierarchical`, `collectives` moves tensors with their gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from meshwright.train.attention.runs import Run
    from meshwright.train.attention.tiles import Pieces


@dataclass(frozen=True, kw_only=True)
class Context:
    """How the rows of a micro-batch are cut over the ranks of `group`.

    `method` is a `ContextParallel`. `runs` are the places in the row that every rank holds, known
    on the host. Of packed rows either `pieces` says where documents begin, or `documents`
    [b, size * s_local] numbers those of whole rows in order; both None where rows hold one each.
    `inner` and `outer` are the groups of the hierarchical method: all-to-all in the one, ring in
    the other.
    """

    group: ProcessGroup
    rank: int
    method: int
    runs: tuple[tuple[Run, ...], ...]
    pieces: Pieces | None = None
    documents: Tensor | None = None
    inner: ProcessGroup | None = None
    outer: ProcessGroup | None = None

    @property
    def size(self) -> int:
        """Ranks over which a row is cut."""
        return len(self.runs)
