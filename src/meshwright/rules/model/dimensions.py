"""What the rules ask of a model: the sizes that axes must divide, over all kinds of block."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from meshwright.model.architecture import Experts, Mlp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.model.architecture import Attention, Model
    from meshwright.plan.plan import IntColumn
    from meshwright.rules.rule import Mask


def attentions(model: Model) -> tuple[Attention, ...]:
    """The distinct attention layers."""
    return tuple(dict.fromkeys(block.attention for block in model.kinds))


def head_counts(model: Model) -> tuple[int, ...]:
    """The distinct numbers of query heads."""
    return _unique(a.num_attention_heads for a in attentions(model))


def key_value_head_counts(model: Model) -> tuple[int, ...]:
    """The distinct numbers of key/value heads; latent attention, whose heads are full, left out."""
    return _unique(a.num_key_value_heads for a in attentions(model) if not a.is_latent)


def uneven_groups(model: Model) -> tuple[tuple[int, int], ...]:
    """Distinct numbers of query heads and of key/value heads that do not divide them."""
    found = ((a.num_attention_heads, a.num_key_value_heads) for a in attentions(model))
    return tuple(sorted({(heads, kv) for heads, kv in found if kv and heads % kv}))


def head_dims(model: Model) -> tuple[int, ...]:
    """The distinct widths of a head, queries and values."""
    return _unique(d for a in attentions(model) for d in (a.head_dim, a.v_head_dim))


def windows(model: Model) -> tuple[int, ...]:
    """The distinct attention windows, in keys."""
    return _unique(a.window for a in attentions(model) if a.window is not None)


def routers(model: Model) -> tuple[Experts, ...]:
    """The distinct routed feed-forward layers."""
    layers = (block.feed_forward for block in model.kinds)
    return tuple(dict.fromkeys(ff for ff in layers if isinstance(ff, Experts)))


def expert_counts(model: Model) -> tuple[int, ...]:
    """The distinct numbers of experts."""
    return _unique(e.num_experts for e in routers(model))


def expert_widths(model: Model) -> tuple[int, ...]:
    """The distinct widths of one expert, which etp divides."""
    return _unique(e.intermediate_size for e in routers(model))


def dense_widths(model: Model) -> tuple[int, ...]:
    """The distinct widths that tp divides: dense feed-forward layers and shared experts."""
    dense = [b.feed_forward for b in model.kinds if isinstance(b.feed_forward, Mlp)]
    shared = [e.shared_intermediate_size for e in routers(model) if e.shared_intermediate_size]
    return _unique([*(ff.intermediate_size for ff in dense), *shared])


def any_size(sizes: Iterable[int], breaks: Callable[[int], Mask]) -> Mask:
    """True where one of the sizes breaks something; False when there are none."""
    return reduce(or_, (breaks(size) for size in sizes), np.bool_(False))


def any_remainder(sizes: Iterable[int], degree: IntColumn) -> Mask:
    """True where `degree` fails to divide one of the sizes."""
    return any_size(sizes, lambda size: size % np.asarray(degree) != 0)


def shares_misaligned(sizes: Iterable[int], degree: IntColumn, *, unit: IntColumn) -> Mask:
    """True where the share of one of the sizes over `degree` ranks is no multiple of `unit`."""
    return any_size(sizes, lambda size: size // np.asarray(degree) % unit != 0)


def _unique(values: Iterable[int]) -> tuple[int, ...]:
    """Values once each, in order of first appearance."""
    return tuple(dict.fromkeys(values))


def listed(values: Iterable[int]) -> str:
    """Sizes as words: "8 and 16"."""
    return " and ".join(str(v) for v in values)
