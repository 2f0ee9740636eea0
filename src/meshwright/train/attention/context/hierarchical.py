"""All-to-all over heads among neighbours, a ring across (USP, arXiv 2405.07719).

`cp_inner` ranks, those on fast links, exchange heads for tokens; rings of cp / cp_inner ranks, each
for its heads, pass on the keys and values of as many tokens as `cp_inner` ranks hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.train.attention.context.collectives import HEADS, to_heads, to_tokens
from meshwright.train.attention.context.ring import round_of, travel
from meshwright.train.attention.context.ulysses import own_heads, repeated_heads

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.context import Context
    from meshwright.train.attention.rule import Rule


def over_levels(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    context: Context,
    rule: Rule,
    sinks: Tensor | None,
) -> Tensor:
    """Attention [b, h, s_local, v]; MeshwrightError where `cp_inner` does not divide the heads."""
    if context.inner is None or context.outer is None:
        raise MeshwrightError(
            "hierarchical context parallelism needs the groups of its two levels",
            hint="make the context with context_of",
        )
    inner = context.inner.size()
    key, value = repeated_heads(query.shape[HEADS], inner, key, value)
    query, key, value = to_heads(context.inner, query, key, value)
    neighbours = [
        sum(context.runs[first : first + inner], ()) for first in range(0, context.size, inner)
    ]
    trip = round_of(context, context.outer, neighbours, rank=context.rank // inner, rule=rule)
    own = own_heads(sinks, context.rank % inner, inner)
    out = travel(query, key, value, trip=trip, sinks=own)
    return to_tokens(context.inner, out)[0]
