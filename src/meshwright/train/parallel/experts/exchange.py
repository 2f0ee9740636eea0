"""Differentiable moves of rows [n, ...] between ranks of a group: each backward is another move.

Written on torch.distributed's public collectives, so that they run on any backend and under fake
tensors. Row counts are known on the host.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.autograd import Function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.distributed import ProcessGroup


def swap(rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
    """All-to-all: the first `sent[0]` rows go to rank 0 and so on; rows by sender come back."""
    result: Tensor = _Swap.apply(rows, sent, received, group)
    return result


def gathered(rows: Tensor, counts: list[int], group: ProcessGroup) -> Tensor:
    """The rows of all ranks, `counts` of each, one after the other; backward sums and scatters."""
    result: Tensor = _Gather.apply(rows, counts, group)
    return result


def summed(rows: Tensor, counts: list[int], group: ProcessGroup) -> Tensor:
    """This rank's part of the sum over ranks of `rows`, cut in `counts`; backward gathers."""
    result: Tensor = _Sum.apply(rows, counts, group)
    return result


def share(rows: Tensor, group: ProcessGroup) -> Tensor:
    """This rank's slice of rows that all ranks of a group hold alike.

    Backward gathers the slices' gradients: like the rows, the gradient is whole on every rank.
    """
    result: Tensor = _Share.apply(rows, group)
    return result


def joined(rows: Tensor, total: int, group: ProcessGroup) -> Tensor:
    """All `total` rows from the ranks' shares, on every rank.

    Backward takes this rank's slice of a gradient that all ranks hold alike.
    """
    result: Tensor = _Join.apply(rows, total, group)
    return result


def share_counts(total: int, size: int) -> list[int]:
    """Rows in the share of each of `size` ranks: as equal as torch.chunk makes them."""
    step = -(-total // size)
    ends = [min(step * rank, total) for rank in range(size + 1)]
    return [end - start for start, end in pairwise(ends)]


class _Swap(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup
    ) -> Tensor:
        ctx.counts = sent, received
        ctx.group = group
        return _all_to_all(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        sent, received = ctx.counts
        return _all_to_all(gradients[0], received, sent, ctx.group), None, None, None


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], group: ProcessGroup) -> Tensor:
        ctx.counts, ctx.group = counts, group
        return _all_gather(rows, counts, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _reduce_scatter(gradients[0], ctx.counts, ctx.group), None, None


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], group: ProcessGroup) -> Tensor:
        ctx.counts, ctx.group = counts, group
        return _reduce_scatter(rows, counts, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _all_gather(gradients[0], ctx.counts, ctx.group), None, None


class _Share(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup) -> Tensor:
        ctx.counts, ctx.group = share_counts(len(rows), group.size()), group
        return _mine(rows, ctx.counts, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _all_gather(gradients[0], ctx.counts, ctx.group), None


class _Join(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, total: int, group: ProcessGroup) -> Tensor:
        ctx.counts, ctx.group = share_counts(total, group.size()), group
        return _all_gather(rows, ctx.counts, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _mine(gradients[0], ctx.counts, ctx.group), None, None


def _mine(rows: Tensor, counts: Sequence[int], group: ProcessGroup) -> Tensor:
    """This rank's slice."""
    rank = group.rank()
    return rows.narrow(0, sum(counts[:rank]), counts[rank])


def _all_to_all(rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
    result = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(result, rows.contiguous(), received, sent, group=group)
    return result


def _all_gather(rows: Tensor, counts: Sequence[int], group: ProcessGroup) -> Tensor:
    """Concatenation; ranks with fewer rows than the longest are padded on the wire."""
    longest = max(counts)
    blocks = rows.new_empty((len(counts) * longest, *rows.shape[1:]))
    dist.all_gather_single(blocks, _padded(rows, longest), group=group)
    if min(counts) == longest:
        return blocks
    return torch.cat([b[:n] for b, n in zip(blocks.split(longest), counts, strict=True)])


def _reduce_scatter(rows: Tensor, counts: Sequence[int], group: ProcessGroup) -> Tensor:
    """Sum of each rank's block over the group; blocks are padded to the longest on the wire."""
    longest = max(counts)
    if min(counts) < longest:
        rows = torch.cat([_padded(b, longest) for b in rows.split(list(counts))])
    result = rows.new_empty((longest, *rows.shape[1:]))
    dist.reduce_scatter_single(result, rows.contiguous(), group=group)
    return result[: counts[group.rank()]]


def _padded(rows: Tensor, length: int) -> Tensor:
    """Rows with zeros behind them up to `length`."""
    if len(rows) == length:
        return rows.contiguous()
    return torch.cat([rows, rows.new_zeros((length - len(rows), *rows.shape[1:]))])
