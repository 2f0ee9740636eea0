"""torch's flash attention over packed documents (2.13, `torch.nn.attention.varlen`).

One kernel for all documents of all rows, sliding windows among them. GPUs alone have it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch.nn.attention import varlen

from meshwright.train.adapters import flash

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.tiles import Pieces


def serves(query: Tensor, value: Tensor) -> bool:
    """Whether the kernel takes query [b, h, s, d] with value [b, kv, s, v]."""
    return query.is_cuda and flash.serves(query, value)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pieces: Pieces,
    window: int | None,
    scaling: float,
) -> Tensor:
    """Causal attention [b, h, s, d] inside documents and the last `window` keys."""
    places, longest = _begins(pieces)
    begins = torch.tensor(places, dtype=torch.int32, device=query.device)
    flat = [t.transpose(1, 2).reshape(-1, t.shape[1], t.shape[-1]) for t in (query, key, value)]
    out: Tensor = varlen.varlen_attn(
        *flat,
        begins,
        begins,
        longest,
        longest,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),  # keys before the query's own
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.view(query.shape[0], -1, *out.shape[1:]).transpose(1, 2)


@lru_cache(maxsize=8)  # every layer asks the same
def _begins(pieces: Pieces) -> tuple[list[int], int]:
    """Where documents begin over all rows end to end, then the end; tokens of the longest."""
    begins, end, longest = [], 0, 0
    for row in pieces:
        begins += [end + start for start in row[:-1]]
        end += row[-1]
        longest = max(longest, *(stop - start for start, stop in pairwise(row)))
    return [*begins, end], longest
