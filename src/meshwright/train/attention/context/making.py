"""How the rows of a micro-batch are cut over the cp ranks of a mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.train.attention.context import Context
from meshwright.train.attention.context.order import in_row_order
from meshwright.train.attention.runs import runs_of

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.plan.plan import Plan
    from meshwright.train.attention.runs import Run
    from meshwright.train.attention.tiles import Pieces
    from meshwright.train.mesh import Mesh


def context_of(
    mesh: Mesh,
    plan: Plan,
    positions: Tensor,
    documents: Tensor | None = None,
    *,
    slices: str = "zigzag",
    pieces: Pieces | None = None,
) -> Context | None:
    """The context of a micro-batch whose rows the loader cut as `slices`; None where cp is 1.

    `positions` [s_local] and `documents` [b, s_local] are this rank's. With `pieces` of the whole
    rows nothing is sent; else the ranks' documents are gathered (4 * b * s_local bytes a rank), so
    that all cp ranks must call this, once a micro-batch, in the same order.
    """
    size = mesh.size("cp")
    if size == 1:
        return None
    group, rank = mesh.group("cp"), mesh.rank("cp")
    runs = tuple(
        runs_of(slices, rank=r, size=size, tokens=positions.shape[-1]) for r in range(size)
    )
    whole = None
    if pieces is None and documents is not None:
        whole = _whole(documents, group, runs)
    return Context(
        group=group,
        rank=rank,
        method=int(plan.context_parallel),
        runs=runs,
        pieces=pieces,
        documents=whole,
    )


def _whole(
    documents: Tensor, group: dist.ProcessGroup, runs: tuple[tuple[Run, ...], ...]
) -> Tensor:
    """Documents of whole rows, in order, from every rank's part."""
    size = len(runs)
    parts = documents.new_empty(size, *documents.shape)
    dist.all_gather_single(parts.view(-1), documents.reshape(-1), group=group)
    return in_row_order(torch.cat(parts.unbind(), 1), sum(runs, ()), dim=1)
