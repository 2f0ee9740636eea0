"""Keys and values of all ranks on each of them, queries where they are.

As in Llama 3 (arXiv 2407.21783, section 3.3.2): simple, any mask, and with few kv heads little to
send; memory for the keys of whole rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.train.attention.context.collectives import SEQUENCE, gather_sequence
from meshwright.train.attention.context.order import documents_of, in_row_order
from meshwright.train.attention.exact import Work, attend
from meshwright.train.attention.runs import Run
from meshwright.train.attention.tiles import tiles_of

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.context import Context
    from meshwright.train.attention.rule import Rule


def over_gathered(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    context: Context,
    rule: Rule,
    sinks: Tensor | None,
) -> Tensor:
    """Attention [b, h, s_local, v]; one all-gather forward, one reduce-scatter back."""
    everyone = sum(context.runs, ())
    key, value = (
        in_row_order(tensor, everyone, dim=SEQUENCE)
        for tensor in gather_sequence(context.group, key, value)
    )
    own, row = context.runs[context.rank], (Run(0, key.shape[SEQUENCE]),)
    work = Work(
        tiles=tiles_of(own, row, window=rule.window, pieces=context.pieces),
        rule=rule,
        same=documents_of(context, own, row),
    )
    return attend(query, key, value, work=work, sinks=sinks)[0]
