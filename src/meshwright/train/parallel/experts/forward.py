"""The forward of a layer's routed experts when they are spread over ranks.

Every rank of the expert mesh works on tokens of its own: ranks that hold the same tokens (tp) take
a share each first, else a token would reach its experts, and count in their gradients, once for
each. Then, as in Megatron's all-to-all dispatcher: rows to the ranks of their experts, rows
gathered over etp, two products and the gate, partial sums scattered over etp, rows back to their
tokens, weighted and summed there. Without ep, etp and tp the moves fall away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function

from meshwright.train.adapters import experts as fused
from meshwright.train.parallel.experts import exchange
from meshwright.train.parallel.experts.order import permuted, sorting, spread, weighted
from meshwright.train.parallel.experts.routing import routes

if TYPE_CHECKING:
    from torch import Tensor, nn

    from meshwright.train.parallel.experts.routing import Crowd, Routes


def routed(
    module: nn.Module, crowd: Crowd, tokens: Tensor, *, experts: Tensor, weights: Tensor
) -> Tensor:
    """Weighted sum of the experts' outputs for each token: [t, hidden] in, [t, hidden] out.

    `experts` and `weights` [t, k] are the router's choice, with global expert numbers.
    """
    if crowd.tp is None:
        return _dispatched(module, crowd, tokens, experts=experts, weights=weights)
    own = _dispatched(
        module,
        crowd,
        exchange.share(tokens, crowd.tp),
        experts=exchange.share(experts, crowd.tp),
        weights=exchange.share(weights, crowd.tp),
    )
    return exchange.joined(own, len(tokens), crowd.tp)


def _dispatched(
    module: nn.Module, crowd: Crowd, tokens: Tensor, *, experts: Tensor, weights: Tensor
) -> Tensor:
    """The same for tokens that no other rank holds."""
    way = routes(experts, crowd)
    rows = spread(tokens, way.order, k=experts.shape[1])
    if crowd.ep.size() > 1:
        rows = exchange.swap(rows, way.sent, way.received, crowd.ep)
    rows = _gathered_over_etp(module, crowd, rows, way)
    if crowd.ep.size() > 1:
        rows = exchange.swap(rows, way.received, way.sent, crowd.ep)
    rows = permuted(rows, way.order.reversed)
    return weighted(rows.view(*experts.shape, -1), weights).to(tokens.dtype)


def _gathered_over_etp(module: nn.Module, crowd: Crowd, rows: Tensor, way: Routes) -> Tensor:
    """Outputs of this rank's experts for the rows it received."""
    if crowd.etp.size() == 1:
        return _worked(module, rows, way.arrived, has_down_bias=True)
    rows = exchange.gathered(rows, way.gathered, crowd.etp)
    rows = _worked(module, rows, way.arrived, has_down_bias=crowd.etp.rank() == 0)
    return exchange.summed(rows, way.gathered, crowd.etp)


def _worked(module: nn.Module, rows: Tensor, arrived: Tensor, *, has_down_bias: bool) -> Tensor:
    """Rows [n, hidden] in order of arrival through their experts, in the same order.

    `arrived` [sources, experts] counts them. The down bias is added by one etp rank alone.
    """
    weights = fused.weights_of(module)
    numbers = _numbers(arrived, len(rows))
    order = sorting(numbers) if len(arrived) > 1 else None  # from one source they come sorted
    if order is not None:
        rows, numbers = permuted(rows, order), numbers[order.forth]
    ends = arrived.sum(0).cumsum(0).to(torch.int32)
    inner = fused.product(rows.to(weights.up.dtype), weights.up, ends)
    if weights.up_bias is not None:
        inner = inner + weights.up_bias[numbers]
    out = fused.product(fused.activated(module, inner), weights.down, ends)
    if weights.down_bias is not None:
        out = out + _Once.apply(weights.down_bias, has_down_bias)[numbers]
    return out if order is None else permuted(out, order.reversed)


def _numbers(arrived: Tensor, count: int) -> Tensor:
    """The local expert [count] of every row, in order of arrival."""
    sources, local = arrived.shape
    numbers = torch.arange(local, device=arrived.device).repeat(sources)
    return numbers.repeat_interleave(arrived.reshape(-1), output_size=count)


class _Once(Function):
    """A bias that one rank adds: zero on the others, whose gradient is whole all the same."""

    @staticmethod
    def forward(_ctx: Any, bias: Tensor, is_here: bool) -> Tensor:
        return bias.clone() if is_here else torch.zeros_like(bias)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
