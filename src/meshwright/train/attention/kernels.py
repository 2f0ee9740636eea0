"""Attention inside one tile, forward and backward.

torch's flash attention where it serves, else plain tensor operations: exact for any float dtype,
mask, cap and head size, with scores for a bounded number of queries at a time. Online softmax and
its backward pass from the log-sum-exp are FlashAttention's (arXiv 2205.14135, algorithms 1 and 4).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from meshwright.train.adapters import flash
from meshwright.train.attention.tiles import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from meshwright.train.attention.rule import Rule

MOST_SCORES = 1 << 26  # that exist at once: 256 MiB in float32
NOTHING = -1e30  # log-sum-exp of a query that sees no key; finite, so that differences are


def wide(tensor: Tensor) -> torch.dtype:
    """The dtype in which scores are summed: float32, or float64 where the tensor is."""
    return torch.promote_types(tensor.dtype, torch.float32)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    rule: Rule,
    kind: Kind,
    offset: int,
    same: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Output [b, h, q, v] and log-sum-exp [b, h, q] over the keys of this tile alone.

    query [b, h, q, d], key [b, kv, k, d], value [b, kv, k, v]; head i reads kv head i // (h / kv).
    `same` are the documents of queries and keys where the device alone knows them.
    """
    if _by_flash(query, value, rule, kind, same):
        causal = kind == Kind.CAUSAL
        return flash.forward(query, key, value, causal=causal, scaling=rule.scaling)
    out = query.new_empty(*query.shape[:3], value.shape[-1])
    lse = query.new_empty(query.shape[:3], dtype=wide(query))
    for begin, end, keys in _chunks(query, key, kind):
        some = slice(begin, end)
        mask = _mask(kind, some, keys, offset=offset, rule=rule, same=same, like=query)
        scores, _ = _scores(query[:, :, some], key[:, :, :keys], rule, mask)
        chunk_lse = torch.logsumexp(scores, -1).clamp_min(NOTHING)
        weights = torch.exp(scores - chunk_lse.unsqueeze(-1)).to(value.dtype)
        out[:, :, some] = _joined(weights @ value[:, :, :keys], query)
        lse[:, :, some] = _joined(chunk_lse.unsqueeze(-1), query).squeeze(-1)
    return out, lse


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    out: Tensor,
    lse: Tensor,
    delta: Tensor,
    rule: Rule,
    kind: Kind,
    offset: int,
    same: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value that pass through this tile.

    `out` and `lse` [b, h, q] are over all keys, sinks among them; `delta` [b, h, q] is the sum of
    output * gradient over the head.
    """
    if _by_flash(query, value, rule, kind, same):
        causal, scaling = kind == Kind.CAUSAL, rule.scaling
        return flash.backward(
            grad, query, key, value, out=out, lse=lse, causal=causal, scaling=scaling
        )
    grad_query = torch.empty_like(query)
    grad_key = torch.zeros_like(key, dtype=wide(key))
    grad_value = torch.zeros_like(value, dtype=wide(value))
    for begin, end, keys in _chunks(query, key, kind):
        some = slice(begin, end)
        mask = _mask(kind, some, keys, offset=offset, rule=rule, same=same, like=query)
        scores, slope = _scores(query[:, :, some], key[:, :, :keys], rule, mask)
        weights = torch.exp(scores - _split(lse[:, :, some].unsqueeze(-1), key))
        up = _split(grad[:, :, some], key)
        grad_value[:, :, :keys] += weights.to(value.dtype).transpose(-1, -2) @ up
        pull = (up @ value[:, :, :keys].transpose(-1, -2)).to(weights.dtype)
        pull = weights * (pull - _split(delta[:, :, some].unsqueeze(-1), key)) * rule.scaling
        pull = (pull if slope is None else pull * slope).to(query.dtype)
        grad_query[:, :, some] = _joined(pull @ key[:, :, :keys], query)
        grad_key[:, :, :keys] += pull.transpose(-1, -2) @ _split(query[:, :, some], key)
    return grad_query, grad_key, grad_value


def _by_flash(
    query: Tensor, value: Tensor, rule: Rule, kind: Kind, same: tuple[Tensor, Tensor] | None
) -> bool:
    """Whether torch's kernel computes this tile."""
    plain = rule.softcap is None and same is None and kind != Kind.BAND
    return plain and flash.serves(query, value)


def _chunks(query: Tensor, key: Tensor, kind: Kind) -> Iterator[tuple[int, int, int]]:
    """(begin, end) of queries, and how many of the first keys they can see."""
    rows, heads, queries, _ = query.shape
    keys = key.shape[2]
    step = max(1, min(queries, MOST_SCORES // max(rows * heads * keys, 1)))
    for begin in range(0, queries, step):
        end = min(begin + step, queries)
        yield begin, end, end if kind == Kind.CAUSAL else keys


def _split(tensor: Tensor, key: Tensor) -> Tensor:
    """[b, h, q, x] as [b, kv, h / kv * q, x]: the queries of a group of heads one below another."""
    rows, heads, queries, size = tensor.shape
    return tensor.reshape(rows, key.shape[1], heads // key.shape[1] * queries, size)


def _joined(tensor: Tensor, query: Tensor) -> Tensor:
    """The reverse of `_split`."""
    rows, heads = query.shape[:2]
    return tensor.reshape(rows, heads, -1, tensor.shape[-1])


def _scores(
    query: Tensor, key: Tensor, rule: Rule, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Scores [b, kv, h / kv * q, k], -inf where not visible, and the slope of the cap."""
    scores = (_split(query, key) @ key.transpose(-1, -2)).to(wide(query)) * rule.scaling
    slope = None
    if rule.softcap is not None:
        bent = torch.tanh(scores / rule.softcap)
        scores, slope = bent * rule.softcap, 1 - bent * bent
    if mask is not None:
        apart = scores.unflatten(2, (-1, query.shape[2]))  # by head of the group
        scores = apart.masked_fill_(~mask[:, :, None], -math.inf).flatten(2, 3)
    return scores, slope


def _mask(
    kind: Kind,
    some: slice,
    keys: int,
    *,
    offset: int,
    rule: Rule,
    same: tuple[Tensor, Tensor] | None,
    like: Tensor,
) -> Tensor | None:
    """True where visible, [b or 1, 1, q, keys]; None where everything is."""
    mask = None
    if kind != Kind.FULL:
        places = torch.arange(some.start + offset, some.stop + offset, device=like.device)
        ago = places[:, None] - torch.arange(keys, device=like.device)[None, :]
        mask = ago >= 0
        if rule.window is not None:
            mask &= ago < rule.window
        mask = mask[None, None]
    if same is None:
        return mask
    of_queries, of_keys = same[0][:, some], same[1][:, :keys]
    together = (of_queries[:, :, None] == of_keys[:, None, :])[:, None]
    return together if mask is None else together & mask
