"""Attention over rows that are whole on this rank; chooses the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import scaled_dot_product_attention

from meshwright.train.adapters import varlen
from meshwright.train.attention.exact import Work, attend
from meshwright.train.attention.runs import Run
from meshwright.train.attention.tiles import tiles_of

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.rule import Rule
    from meshwright.train.attention.tiles import Pieces
    from meshwright.train.span import Span


def whole_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    span: Span | None,
    rule: Rule,
    sinks: Tensor | None,
) -> Tensor:
    """Attention [b, h, s, v] where every rank of the sequence's tokens is here and in order."""
    pieces = None if span is None else span.pieces
    documents = None if span is None or pieces is not None else span.documents
    return in_order(query, key, value, rule=rule, sinks=sinks, pieces=pieces, documents=documents)[
        0
    ]


def in_order(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    rule: Rule,
    sinks: Tensor | None = None,
    pieces: Pieces | None = None,
    documents: Tensor | None = None,
    want_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Output and, where wanted or at hand, log-sum-exp [b, h, s] of rows in order.

    Documents are known to the host (`pieces`), to the device alone (`documents` [b, s]), or none.
    """
    tokens = query.shape[2]
    rule = _without_idle_window(rule, tokens)
    if sinks is None and rule.softcap is None and documents is None and not want_lse:
        out = _by_torch(query, key, value, rule, pieces)
        if out is not None:
            return out, None
    row = (Run(0, tokens),)
    same = None if documents is None else (documents, documents)
    work = Work(tiles=tiles_of(row, row, window=rule.window, pieces=pieces), rule=rule, same=same)
    return attend(query, key, value, work=work, sinks=sinks)


def _without_idle_window(rule: Rule, tokens: int) -> Rule:
    """The rule without a window that is as long as the row."""
    if rule.window is None or rule.window < tokens:
        return rule
    return type(rule)(scaling=rule.scaling, softcap=rule.softcap)


def _by_torch(
    query: Tensor, key: Tensor, value: Tensor, rule: Rule, pieces: Pieces | None
) -> Tensor | None:
    """By a kernel of torch that needs no matrix of all scores, None where there is none."""
    if pieces is None and rule.window is None:
        same_sizes = query.shape[-1] == value.shape[-1]
        return _plain(query, key, value, rule) if same_sizes or not query.is_cpu else None
    if not varlen.serves(query, value):
        return None
    pieces = pieces or ((0, query.shape[2]),) * query.shape[0]
    return varlen.attention(
        query, key, value, pieces=pieces, window=rule.window, scaling=rule.scaling
    )


def _plain(query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
    """Causal attention by whichever kernel torch has for the device."""
    out: Tensor = scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        scale=rule.scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out
