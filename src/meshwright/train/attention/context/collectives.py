"""Collectives over the ranks of a sequence, several tensors in one call, with their gradients.

The gradient of an all-gather is a reduce-scatter, that of an all-to-all the all-to-all back. A
backward pass makes the same calls on every rank, in the order of the graph, which is the same too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.distributed import ProcessGroup

HEADS, SEQUENCE = 1, 2  # dims of [b, h, s, d]


def gather_sequence(group: ProcessGroup, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Every rank's tokens one after another: [b, h, s, d] becomes [b, h, size * s, d]."""
    out: tuple[Tensor, ...] = _Gather.apply(group, *tensors)
    return out


def to_heads(group: ProcessGroup, *tensors: Tensor) -> tuple[Tensor, ...]:
    """All tokens of some heads for some tokens of all: [b, h, s, d] to [b, h / size, size * s, d].

    Rank r receives heads r * h / size and on, and every rank's tokens one after another.
    """
    out: tuple[Tensor, ...] = _Exchange.apply(group, HEADS, *tensors)
    return out


def to_tokens(group: ProcessGroup, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The reverse of `to_heads`."""
    out: tuple[Tensor, ...] = _Exchange.apply(group, SEQUENCE, *tensors)
    return out


class _Gather(torch.autograd.Function):
    """All-gather along the sequence; reduce-scatter back."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group, size = group, dist.get_world_size(group)
        own = _flat(tensors)
        received = own.new_empty(size, own.numel())
        dist.all_gather_single(received.view(-1), own, group=group)
        return _cat_ranks(received, [t.shape for t in tensors], SEQUENCE)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        size = dist.get_world_size(ctx.group)
        sent = _by_rank(grads, SEQUENCE, size)
        own = sent.new_empty(sent.shape[1])
        dist.reduce_scatter_single(own, sent.view(-1), group=ctx.group)
        shapes = [_cut(grad.shape, SEQUENCE, size) for grad in grads]
        return None, *_unflat(own, shapes)


class _Exchange(torch.autograd.Function):
    """All-to-all that cuts dim `cut` over the ranks and joins the other; its reverse back."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, cut: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.cut = group, cut
        return _exchange(group, cut, tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_exchange(ctx.group, HEADS + SEQUENCE - ctx.cut, grads)


def _exchange(group: ProcessGroup, cut: int, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """One all-to-all for all tensors."""
    size = dist.get_world_size(group)
    sent = _by_rank(tensors, cut, size)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    shapes = [_cut(t.shape, cut, size) for t in tensors]
    return _cat_ranks(received, shapes, HEADS + SEQUENCE - cut)


def _cut(shape: torch.Size, dim: int, size: int) -> torch.Size:
    """The shape of one rank's part."""
    return torch.Size([*shape[:dim], shape[dim] // size, *shape[dim + 1 :]])


def _by_rank(tensors: Sequence[Tensor], dim: int, size: int) -> Tensor:
    """[size, n]: for every rank its parts of all tensors, flat."""
    own = [tensor.numel() // size for tensor in tensors]
    sent = tensors[0].new_empty(size, sum(own))
    for tensor, part in zip(tensors, sent.split(own, 1), strict=True):
        apart = tensor.unflatten(dim, (size, -1)).movedim(dim, 0)
        part.unflatten(1, apart.shape[1:]).copy_(apart)
    return sent


def _cat_ranks(received: Tensor, shapes: Sequence[torch.Size], dim: int) -> tuple[Tensor, ...]:
    """Of [size, n] the tensors, every rank's part after another along `dim`."""
    parts = received.split([shape.numel() for shape in shapes], 1)
    return tuple(
        torch.cat([one.view(shape) for one in part], dim)
        for part, shape in zip(parts, shapes, strict=True)
    )


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """All tensors one after another."""
    return torch.cat([t.reshape(-1) for t in tensors])


def _unflat(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """The reverse of `_flat`."""
    parts = flat.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
