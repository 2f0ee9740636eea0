"""Attention over a cut sequence, by the method of its context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.plan.plan import ContextParallel
from meshwright.train.attention.context.gather import over_gathered
from meshwright.train.attention.context.hierarchical import over_levels
from meshwright.train.attention.context.ring import over_ring
from meshwright.train.attention.context.ulysses import over_heads

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.context import Context
    from meshwright.train.attention.rule import Rule

METHODS = {
    ContextParallel.ALL_GATHER: over_gathered,
    ContextParallel.ULYSSES: over_heads,
    ContextParallel.RING: over_ring,
    ContextParallel.HIERARCHICAL: over_levels,
}


def over_ranks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    context: Context,
    rule: Rule,
    sinks: Tensor | None,
) -> Tensor:
    """Attention [b, h, s_local, v] of this rank's queries over the keys of all ranks."""
    method = METHODS[ContextParallel(context.method)]
    return method(query, key, value, context=context, rule=rule, sinks=sinks)
