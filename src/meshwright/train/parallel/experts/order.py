"""Differentiable reorderings of rows whose backward is one more reordering.

Plain indexing would scatter gradients with atomic additions: slow, and not the same twice on GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Order:
    """A permutation of rows and the one that undoes it, int32 [rows] each: they are kept long."""

    forth: Tensor
    back: Tensor

    @property
    def reversed(self) -> Order:
        """The other way round."""
        return Order(self.back, self.forth)


def sorting(keys: Tensor) -> Order:
    """The stable order that sorts integer keys [rows]."""
    forth = torch.argsort(keys, stable=True)
    places = torch.arange(len(keys), device=keys.device, dtype=torch.int32)
    back = torch.empty_like(places).scatter_(0, forth, places)
    return Order(forth.to(torch.int32), back)


def permuted(rows: Tensor, order: Order) -> Tensor:
    """`rows[order]`."""
    result: Tensor = _Permute.apply(rows, order.forth, order.back)
    return result


def spread(tokens: Tensor, order: Order, *, k: int) -> Tensor:
    """Every token [t, d] k times, in `order` of the t * k copies: [t * k, d]."""
    result: Tensor = _Spread.apply(tokens, order.forth, order.back, k)
    return result


def weighted(rows: Tensor, weights: Tensor) -> Tensor:
    """Sum over k of rows [t, k, d] times weights [t, k], in the wider of the two formats: [t, d].

    Rows are kept for the backward pass in the format they have.
    """
    result: Tensor = _Weighted.apply(rows, weights)
    return result


class _Permute(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, undo: Tensor) -> Tensor:
        ctx.save_for_backward(undo)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (undo,) = ctx.saved_tensors
        return gradients[0].index_select(0, undo), None, None


class _Spread(Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, order: Tensor, undo: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(undo)
        ctx.k = k
        return tokens.index_select(0, order // k)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (undo,) = ctx.saved_tensors
        copies = gradients[0].index_select(0, undo)
        tokens = copies.view(-1, ctx.k, copies.shape[1]).sum(1)
        return tokens, None, None, None


class _Weighted(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights)
        dtype = torch.promote_types(rows.dtype, weights.dtype)
        return torch.bmm(weights.to(dtype).unsqueeze(1), rows.to(dtype)).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        rows, weights = ctx.saved_tensors
        gradient = gradients[0].unsqueeze(1)
        of_rows = weights.to(gradient.dtype).unsqueeze(2) * gradient
        of_weights = torch.bmm(rows.to(gradient.dtype), gradient.transpose(1, 2)).squeeze(2)
        return of_rows.to(rows.dtype), of_weights.to(weights.dtype)
