"""All tokens of some heads on every rank (DeepSpeed-Ulysses, arXiv 2309.14509).

One all-to-all for query, key and value, one back for the output. Key-value heads fewer than the
ranks are repeated, no more than it takes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.train.attention.context.collectives import HEADS, SEQUENCE, to_heads, to_tokens
from meshwright.train.attention.context.order import in_row_order, in_run_order
from meshwright.train.attention.core import in_order

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.context import Context
    from meshwright.train.attention.rule import Rule


def over_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    context: Context,
    rule: Rule,
    sinks: Tensor | None,
) -> Tensor:
    """Attention [b, h, s_local, v]; MeshwrightError where the ranks do not divide the heads."""
    heads, size = query.shape[HEADS], context.size
    key, value = repeated_heads(heads, size, key, value)
    everyone = sum(context.runs, ())
    query, key, value = (
        in_row_order(tensor, everyone, dim=SEQUENCE)
        for tensor in to_heads(context.group, query, key, value)
    )
    out, _ = in_order(
        query,
        key,
        value,
        rule=rule,
        sinks=own_heads(sinks, context.rank, size),
        pieces=context.pieces,
        documents=context.documents,
    )
    return to_tokens(context.group, in_run_order(out, everyone, dim=SEQUENCE))[0]


def repeated_heads(heads: int, ranks: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Key and value with so many heads that `ranks` divide them, each serving its query heads."""
    if heads % ranks:
        raise MeshwrightError(
            f"all-to-all over {ranks} ranks needs them to divide the {heads} attention heads here",
            hint='set plan.context_parallel to "ring" or "all_gather", or cp to a divisor',
        )
    kv = tensors[0].shape[HEADS]
    wanted = math.lcm(kv, ranks)
    times = (heads if heads % wanted else wanted) // kv
    return tensors if times == 1 else tuple(t.repeat_interleave(times, HEADS) for t in tensors)


def own_heads(sinks: Tensor | None, rank: int, size: int) -> Tensor | None:
    """The sinks of the heads that rank `rank` computes."""
    return None if sinks is None else sinks.chunk(size)[rank]
