"""Differentiable reorderings of rows whose backward is one more reordering.

Plain indexing would scatter gradients with atomic additions: slow, and not the same twice on GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function

if TYPE_CHECKING:
    from torch import Tensor


def inverse(order: Tensor) -> Tensor:
    """The order that undoes `order`."""
    result = torch.empty_like(order)
    return result.scatter_(0, order, torch.arange(len(order), device=order.device))


def permuted(rows: Tensor, order: Tensor, undo: Tensor) -> Tensor:
    """`rows[order]`, where `undo` is the inverse of `order`."""
    result: Tensor = _Permute.apply(rows, order, undo)
    return result


def spread(tokens: Tensor, order: Tensor, undo: Tensor, *, k: int) -> Tensor:
    """Every token [t, d] k times, in `order` of the t * k copies: [t * k, d]."""
    result: Tensor = _Spread.apply(tokens, order, undo, k)
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
