"""Keys and values travel around the ranks, outputs are merged by their log-sum-exp.

Ring attention (arXiv 2310.01889): at every step a rank attends to the keys that it holds and passes
them on while it does so. In the backward pass the gradients of keys travel with them, and are home
after a whole round. Parts of the score matrix that nobody sees are not computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from meshwright.base.noun import dataclass
from meshwright.train.attention.context.order import documents_of
from meshwright.train.attention.exact import (
    Work,
    add_gradients,
    add_sinks,
    add_tiles,
    delta_of,
    empty_sums,
    sink_gradient,
)
from meshwright.train.attention.tiles import tiles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.distributed import ProcessGroup

    from meshwright.train.attention.context import Context
    from meshwright.train.attention.rule import Rule
    from meshwright.train.attention.runs import Run


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of the ring: `works[i]` is what is to be done at step i."""

    group: ProcessGroup
    works: tuple[Work, ...]


def over_ring(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    context: Context,
    rule: Rule,
    sinks: Tensor | None,
) -> Tensor:
    """Attention [b, h, s_local, v]; size - 1 sends forward, 2 * size - 1 back."""
    trip = round_of(context, context.group, context.runs, rank=context.rank, rule=rule)
    return travel(query, key, value, trip=trip, sinks=sinks)


def round_of(
    context: Context,
    group: ProcessGroup,
    runs: Sequence[tuple[Run, ...]],
    *,
    rank: int,
    rule: Rule,
) -> Round:
    """Step i of rank r is about the keys of rank r - i; `runs` are the members' places."""
    works = []
    for step in range(len(runs)):
        own, other = runs[rank], runs[(rank - step) % len(runs)]
        tiles = tiles_of(own, other, window=rule.window, pieces=context.pieces)
        works.append(Work(tiles=tiles, rule=rule, same=documents_of(context, own, other)))
    return Round(group=group, works=tuple(works))


def travel(
    query: Tensor, key: Tensor, value: Tensor, *, trip: Round, sinks: Tensor | None
) -> Tensor:
    """Attention of the queries here over the keys of every rank of the ring."""
    fixed = None if sinks is None else sinks.detach()
    out: Tensor
    out, lse = _Ring.apply(query, key, value, fixed, trip)
    return out if sinks is None else sink_gradient(out, lse, sinks)


class _Ring(torch.autograd.Function):
    """Attention over travelling keys."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, trip: Round
    ) -> tuple[Tensor, Tensor]:
        sums = empty_sums(query, value)
        held = (key.contiguous(), value.contiguous())
        for step, work in enumerate(trip.works):
            arrived = _pass_on(held, trip.group) if step + 1 < len(trip.works) else None
            add_tiles(sums, query, *held, work=work, fresh=step == 0)
            held = arrived() if arrived else held
        add_sinks(sums, sinks)
        out, lse = sums[0].to(query.dtype), sums[1]
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.trip = trip
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        trip, told = ctx.trip, {"out": out, "lse": lse, "delta": delta_of(grad, out)}
        grad_query = torch.zeros_like(query, dtype=lse.dtype)
        held = (key.contiguous(), value.contiguous())
        homebound: Callable[[], tuple[Tensor, ...]] = tuple
        for step, work in enumerate(trip.works):
            arrived = _pass_on(held, trip.group) if step + 1 < len(trip.works) else None
            parts = tuple(torch.zeros_like(t, dtype=lse.dtype) for t in held)
            add_gradients((grad_query, *parts), grad, query, *held, work=work, **told)
            for part, others in zip(parts, homebound(), strict=step > 0):
                part += others
            homebound = _pass_on(parts, trip.group)
            held = arrived() if arrived else held
        return *(g.to(query.dtype) for g in (grad_query, *homebound())), None, None


def _pass_on(tensors: Sequence[Tensor], group: ProcessGroup) -> Callable[[], tuple[Tensor, ...]]:
    """Sends to the next rank what is here; the call returned waits for what the last one sent."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if size == 1:  # a ring of one has nobody to send to
        return lambda: tuple(tensors)
    received = tuple(torch.empty_like(t) for t in tensors)
    following, previous = (rank + 1) % size, (rank - 1) % size
    calls = [dist.P2POp(dist.isend, t, group=group, group_peer=following) for t in tensors]
    calls += [dist.P2POp(dist.irecv, t, group=group, group_peer=previous) for t in received]
    waiting = dist.batch_isend_irecv(calls)

    def arrived() -> tuple[Tensor, ...]:
        for call in waiting:
            call.wait()
        return received

    return arrived
