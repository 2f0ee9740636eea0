"""The function that transformers' attention layers call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from meshwright.base.errors import MeshwrightError
from meshwright.train.attention.context.methods import over_ranks
from meshwright.train.attention.core import whole_rows
from meshwright.train.attention.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor, nn

    from meshwright.train.span import Span


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    span: Span | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention [b, s, h, v] of query [b, h, s, d] over key [b, kv, s, d] and value [b, kv, s, v].

    Causal, inside the documents and the context of `span` (without one: whole rows of one document
    each). Computed again in the backward pass where the module is marked `recomputed`.
    MeshwrightError for what it cannot respect: a mask, dropout, both directions.
    """
    _refuse(module, attention_mask, dropout)
    rule = Rule(
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
    )
    sinks = s_aux.to_local() if isinstance(s_aux, DTensor) else s_aux
    context = None if span is None else span.context
    compute = (
        partial(whole_rows, span=span, rule=rule, sinks=sinks)
        if context is None
        else partial(over_ranks, context=context, rule=rule, sinks=sinks)
    )
    if getattr(module, "recomputed", False):
        out = checkpoint(compute, query, key, value, use_reentrant=False, preserve_rng_state=False)
    else:
        out = compute(query, key, value)
    return out.transpose(1, 2).contiguous(), None


def _refuse(module: nn.Module, mask: Tensor | None, dropout: float) -> None:
    """MeshwrightError for what the computation would silently leave out."""
    if mask is not None:
        raise MeshwrightError(
            "an attention mask was given, which meshwright's attention does not read",
            hint="leave attention_mask out; documents and padding are told by span.documents",
        )
    if dropout:
        raise MeshwrightError(
            f"attention dropout of {dropout} is not supported",
            hint="set attention_dropout to 0 in the model's config.json",
        )
    if not getattr(module, "is_causal", True):
        raise MeshwrightError(
            "this layer attends in both directions; only causal language models are trained",
            hint="set use_bidirectional_attention to false in the model's config.json",
        )
