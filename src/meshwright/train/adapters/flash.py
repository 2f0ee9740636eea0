"""torch's flash attention with its log-sum-exp (2.13): the operators below SDPA.

`scaled_dot_product_attention` keeps the log-sum-exp to itself, and merging outputs over blocks of
keys needs it. CPUs and accelerators have the same pair of operators under two names; torch's own
context parallelism calls them too (torch/distributed/tensor/experimental/_context_parallel).
Given the log-sum-exp and the output over *all* keys, the backward operator returns the exact
gradients that pass through one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

aten = torch.ops.aten
ALIGNED, MOST_SIZE = 8, 256  # head sizes that the kernels of GPUs take (sdp_utils.cpp)


def serves(query: Tensor, value: Tensor) -> bool:
    """Whether the operators take query [b, h, q, d] with value [b, kv, k, v], real or fake.

    torch's own choice (`torch._fused_sdp_choice`) is not asked: of fake tensors it knows nothing.
    """
    size = query.shape[-1]
    if value.shape[-1] != size or not torch.backends.cuda.flash_sdp_enabled():
        return False
    if query.is_cpu:
        return True
    half = query.dtype in (torch.float16, torch.bfloat16)
    return query.is_cuda and half and size % ALIGNED == 0 and size <= MOST_SIZE


def forward(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scaling: float
) -> tuple[Tensor, Tensor]:
    """Output [b, h, q, d] and log-sum-exp [b, h, q] over these keys; causal needs q = k."""
    if query.is_cpu:
        cpu = aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = cpu(query, key, value, 0.0, causal, scale=scaling)
        return out, lse
    out, lse, *_ = aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, causal, False, scale=scaling
    )
    return out, lse


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scaling: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value; `out` and `lse` are over all keys."""
    lse = lse.contiguous()  # other strides give wrong numbers on GPUs
    if query.is_cpu:
        cpu = aten._scaled_dot_product_flash_attention_for_cpu_backward
        grads = cpu(grad, query, key, value, out, lse, 0.0, causal, scale=scaling)
        return grads[0], grads[1], grads[2]
    seed = torch.empty(0, dtype=torch.uint64, device=query.device)  # of no dropout
    grads = aten._scaled_dot_product_flash_attention_backward(
        *(grad, query, key, value, out, lse, None, None, query.shape[2], key.shape[2]),
        *(0.0, causal, seed, seed),
        scale=scaling,
    )
    return grads[0], grads[1], grads[2]
