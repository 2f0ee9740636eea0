"""Attention over tiles, with an exact backward pass that keeps no scores.

Saved for the backward pass are query, key, value, output and log-sum-exp, as FlashAttention does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from meshwright.base.noun import dataclass
from meshwright.train.attention import kernels
from meshwright.train.attention.kernels import NOTHING, wide

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.rule import Rule
    from meshwright.train.attention.tiles import Tile


@dataclass(frozen=True, kw_only=True)
class Work:
    """Tiles of queries against keys, and the rule of the scores.

    `same` are the documents of the queries [b, q] and of the keys [b, k] where the tiles do not
    already respect them.
    """

    tiles: tuple[Tile, ...]
    rule: Rule
    same: tuple[Tensor, Tensor] | None = None


def attend(
    query: Tensor, key: Tensor, value: Tensor, *, work: Work, sinks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output [b, h, q, v] and log-sum-exp [b, h, q], which has no gradient; sinks are [h]."""
    fixed = None if sinks is None else sinks.detach()
    out, lse = _Attend.apply(query, key, value, fixed, work)
    return (out if sinks is None else sink_gradient(out, lse, sinks)), lse


def empty_sums(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp before any key has been seen, in the wide dtype."""
    shape = query.shape[:3]
    rows, heads, queries = shape  # laid out as the output leaves: its transpose is no copy
    sums = value.new_zeros(rows, queries, heads, value.shape[-1], dtype=wide(query))
    out = sums.transpose(1, 2)
    return out, query.new_full(shape, NOTHING, dtype=wide(query))


def add_tiles(
    sums: tuple[Tensor, Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    work: Work,
    fresh: bool = False,
) -> None:
    """Merges what the tiles see into output and log-sum-exp, in place; `fresh` ones are empty."""
    out, lse = sums
    for tile in work.tiles:
        rows, queries, keys = _slices(tile)
        part, part_lse = kernels.forward(
            query[rows, :, queries],
            key[rows, :, keys],
            value[rows, :, keys],
            rule=work.rule,
            kind=tile.kind,
            offset=tile.offset,
            same=_same(work, tile),
        )
        if fresh and tile.alone:
            out[rows, :, queries], lse[rows, :, queries] = part, part_lse
            continue
        old = lse[rows, :, queries]
        new = torch.logaddexp(old, part_lse)
        out[rows, :, queries].mul_(torch.exp(old - new).unsqueeze(-1))
        out[rows, :, queries].add_(part * torch.exp(part_lse - new).unsqueeze(-1))
        lse[rows, :, queries] = new


def add_sinks(sums: tuple[Tensor, Tensor], sinks: Tensor | None) -> None:
    """Merges a key of no value whose score is the head's sink, in place."""
    if sinks is None:
        return
    out, lse = sums
    new = torch.logaddexp(lse, sinks.to(lse.dtype)[None, :, None])
    out.mul_(torch.exp(lse - new).unsqueeze(-1))
    lse.copy_(new)


def delta_of(grad: Tensor, out: Tensor) -> Tensor:
    """The sum of output * gradient over the head [b, h, q], in the wide dtype."""
    return (grad.to(wide(grad)) * out).sum(-1)


def add_gradients(
    gradients: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    out: Tensor,
    lse: Tensor,
    delta: Tensor,
    work: Work,
) -> None:
    """Adds the tiles' gradients of query, key and value to `gradients`, in place."""
    for tile in work.tiles:
        rows, queries, keys = _slices(tile)
        parts = kernels.backward(
            grad[rows, :, queries],
            query[rows, :, queries],
            key[rows, :, keys],
            value[rows, :, keys],
            out=out[rows, :, queries],
            lse=lse[rows, :, queries],
            delta=delta[rows, :, queries],
            rule=work.rule,
            kind=tile.kind,
            offset=tile.offset,
            same=_same(work, tile),
        )
        for total, part, some in zip(gradients, parts, (queries, keys, keys), strict=True):
            total[rows, :, some] += part


def empty_gradients(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros in the wide dtype."""
    zeros = [torch.zeros_like(t, dtype=wide(t)) for t in (query, key, value)]
    return zeros[0], zeros[1], zeros[2]


def sink_gradient(out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """The output unchanged, and in the backward pass the gradient of the sinks that made it.

    Apart from the rest, so that a schedule that asks for the weights' gradients later (zero bubble)
    repeats neither kernels nor collectives for them.
    """
    same: Tensor = _SinkGradient.apply(out, lse, sinks)
    return same


def _slices(tile: Tile) -> tuple[slice, slice, slice]:
    """Rows, queries and keys of a tile."""
    rows = slice(None) if tile.row is None else slice(tile.row, tile.row + 1)
    return rows, slice(tile.q_begin, tile.q_end), slice(tile.k_begin, tile.k_end)


def _same(work: Work, tile: Tile) -> tuple[Tensor, Tensor] | None:
    """Documents of the tile's queries and keys."""
    if work.same is None:
        return None
    rows, queries, keys = _slices(tile)
    return work.same[0][rows, queries], work.same[1][rows, keys]


class _Attend(torch.autograd.Function):
    """Attention of queries over keys that are all here."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, work: Work
    ) -> tuple[Tensor, Tensor]:
        sums = empty_sums(query, value)
        add_tiles(sums, query, key, value, work=work, fresh=True)
        add_sinks(sums, sinks)
        out, lse = sums[0].to(query.dtype), sums[1]
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.work = work
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        gradients = empty_gradients(query, key, value)
        sums = {"out": out, "lse": lse, "delta": delta_of(grad, out)}
        add_gradients(gradients, grad, query, key, value, work=ctx.work, **sums)
        return *(g.to(query.dtype) for g in gradients), None, None


class _SinkGradient(torch.autograd.Function):
    """Identity; a sink's share of the weights is exp(sink - lse), its value nothing."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
        ctx.save_for_backward(out, lse, sinks)
        return out.view_as(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        out, lse, sinks = ctx.saved_tensors
        share = torch.exp(sinks.to(lse.dtype)[None, :, None] - lse)
        return grad, None, -(share * delta_of(grad, out)).sum((0, 2)).to(sinks.dtype)
