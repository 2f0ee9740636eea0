"""How the rows of a run are cut over the cp ranks of a mesh, and of a micro-batch its documents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from meshwright.base.errors import MeshwrightError
from meshwright.plan.plan import ContextParallel
from meshwright.train.attention.context import Context
from meshwright.train.attention.context.order import in_row_order
from meshwright.train.attention.pieces import is_packed, pieces_of
from meshwright.train.attention.runs import runs_of
from meshwright.train.span import Span

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from meshwright.plan.plan import Plan
    from meshwright.train.attention.tiles import Pieces
    from meshwright.train.mesh import Mesh


def context_of(mesh: Mesh, plan: Plan, *, seq_len: int, slices: str = "zigzag") -> Context | None:
    """How rows of `seq_len` tokens, cut as the loader's `slices`, lie over cp; None where cp is 1.

    Makes process groups, so that all ranks of the world must call it, once and before the first
    step. MeshwrightError where `seq_len` or `plan.cp_inner` does not divide.
    """
    size = mesh.size("cp")
    if size == 1:
        return None
    parts = 2 * size if slices == "zigzag" else size
    if seq_len % parts:
        raise MeshwrightError(
            f"rows of {seq_len} tokens do not divide into {parts} slices ({slices}, cp {size})",
            hint=f"set seq_len to a multiple of {parts}",
        )
    tokens, method = seq_len // size, int(plan.context_parallel)
    outer, inner = None, None
    if method == ContextParallel.HIERARCHICAL:
        outer, inner = _levels(mesh, int(plan.cp_inner))
    return Context(
        group=mesh.group("cp"),
        rank=mesh.rank("cp"),
        method=method,
        runs=tuple(runs_of(slices, rank=r, size=size, tokens=tokens) for r in range(size)),
        outer=outer,
        inner=inner,
    )


def span_of(
    positions: Tensor, documents: Tensor | None = None, *, context: Context | None = None
) -> Span:
    """What attention is told of a micro-batch: `positions` [s] and `documents` [b, s] of this rank.

    With a context the documents of all ranks are gathered, so that every rank of its group must
    call this, in the same order; `documents` may not be None on some of them alone.
    """
    if documents is None:
        return Span(positions=positions, context=context)
    if context is not None:
        return Span(
            positions=positions, documents=documents, context=with_documents(context, documents)
        )
    pieces = pieces_of(documents)
    if pieces is not None and not is_packed(pieces):
        return Span(positions=positions)
    return Span(positions=positions, documents=documents, pieces=pieces)


def with_documents(
    context: Context, documents: Tensor | None = None, *, pieces: Pieces | None = None
) -> Context:
    """The context of one micro-batch of packed rows; as it is where rows hold one document each.

    With `pieces` of the whole rows nothing is sent. Without, this rank's `documents` [b, s_local]
    (int32) are gathered from all: 4 * b * s_local bytes a rank.
    """
    if pieces is None:
        if documents is None:
            return context
        whole = _gathered(documents, context)
        pieces = pieces_of(whole)
        if pieces is None:
            return replace(context, documents=whole)
    return replace(context, pieces=pieces if is_packed(pieces) else None)


def _gathered(documents: Tensor, context: Context) -> Tensor:
    """Documents of whole rows in order, from every rank's part."""
    parts = documents.new_empty(context.size, *documents.shape)
    dist.all_gather_single(parts.view(-1), documents.reshape(-1), group=context.group)
    return in_row_order(torch.cat(parts.unbind(), 1), sum(context.runs, ()), dim=1)


def _levels(mesh: Mesh, inner: int) -> tuple[ProcessGroup, ProcessGroup]:
    """This rank's groups of the ring across and of the all-to-all inside, of `inner` neighbours."""
    degrees = mesh.degrees
    if inner < 1 or degrees.cp % inner:
        raise MeshwrightError(
            f"cp_inner {inner} does not divide cp {degrees.cp}",
            hint=f"set plan.cp_inner to a divisor of {degrees.cp}",
        )
    names = ("others", "cp_outer", "cp_inner", "tp")
    others = degrees.world_size // (degrees.cp * degrees.tp)
    sizes = (others, degrees.cp // inner, inner, degrees.tp)
    levels = init_device_mesh(mesh.device_type, sizes, mesh_dim_names=names)
    return levels["cp_outer"].get_group(), levels["cp_inner"].get_group()
