"""Tiny models of every family that meshwright trains: a few thousand weights, nothing left out.

Each keeps what makes its family hard to parallelize: grouped key/value heads, windows on some of
the layers, norms over heads, biases, sinks, latent attention, routed layers behind dense ones,
shared experts, embeddings tied where the family ties them, soft-capped logits, a padding token.
Sizes divide by 4, so that tp, ep and etp up to 4 are possible (tp 4 with `kv_heads=4`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PretrainedConfig

HEADS = 4
HEAD_DIM = 8
WINDOW = 8  # keys that a query sees in a sliding layer
EXPERTS = 8
TOP_K = 2

_COMMON = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 128,
    "use_cache": False,
    "initializer_range": 0.2,  # weights that matter at this width: a wrong one is seen
}
_EXPERT_SIZE = 24
_LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,  # not that of the queries: a mix-up is seen
    "num_key_value_heads": HEADS,
}


def tiny_config(
    family: str,
    *,
    layers: int = 4,
    kv_heads: int = 2,
    tie_word_embeddings: bool | None = None,
    **changes: Any,
) -> PretrainedConfig:
    """The configuration of a tiny model of a family (a model_type of transformers).

    Embeddings are tied as the family ties them unless `tie_word_embeddings` says otherwise;
    `kv_heads` is 1, 2 or 4 (of 4 heads; latent attention has no such number); `changes` are keys of
    the family's own configuration. UnknownName for a family that is not in `FAMILIES`.
    """
    from transformers import AutoConfig

    if family not in FAMILIES:
        raise UnknownName("model family", family, suggestions=nearest(family, FAMILIES))
    keys = {**_COMMON, "num_hidden_layers": layers, "num_key_value_heads": kv_heads}
    keys |= _OWN[family](layers)
    if tie_word_embeddings is not None:
        keys["tie_word_embeddings"] = tie_word_embeddings
    return AutoConfig.for_model(family, **{**keys, **changes})


def _plain(_layers: int) -> dict[str, Any]:
    return {}


def _windowed(_layers: int) -> dict[str, Any]:
    return {"sliding_window": WINDOW}


def _wide_heads(_layers: int) -> dict[str, Any]:
    """Heads whose widths do not add up to hidden_size."""
    return {"head_dim": 2 * HEAD_DIM}


def _qwen3_moe(layers: int) -> dict[str, Any]:
    return {
        **_wide_heads(layers),
        "moe_intermediate_size": _EXPERT_SIZE,
        "num_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "norm_topk_prob": True,
    }


def _mixtral(_layers: int) -> dict[str, Any]:
    return {
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": TOP_K,
        "intermediate_size": _EXPERT_SIZE,
    }


def _gpt_oss(layers: int) -> dict[str, Any]:
    scaling = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4}
    return {
        **_mixtral(layers),
        **_wide_heads(layers),
        "sliding_window": WINDOW,
        "rope_parameters": scaling,
    }


def _shared_experts(_layers: int) -> dict[str, Any]:
    """Routed and shared experts behind one dense layer."""
    return {
        "moe_intermediate_size": _EXPERT_SIZE,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": TOP_K,
        "first_k_dense_replace": 1,
    }


def _deepseek_v3(layers: int) -> dict[str, Any]:
    return {**_shared_experts(layers), **_LATENT, "n_group": 2, "topk_group": 1}


def _glm4_moe(layers: int) -> dict[str, Any]:
    return {
        **_shared_experts(layers),
        **_wide_heads(layers),
        "use_qk_norm": True,
        "attention_bias": True,
    }


def _gemma(layers: int) -> dict[str, Any]:
    """Sliding and full layers by turns."""
    kinds = ("sliding_attention", "full_attention")
    return {
        **_wide_heads(layers),
        "query_pre_attn_scalar": 2 * HEAD_DIM,
        "sliding_window": WINDOW,
        "layer_types": [kinds[i % 2] for i in range(layers)],
    }


def _phi3(_layers: int) -> dict[str, Any]:
    return {"sliding_window": WINDOW, "pad_token_id": 95, "eos_token_id": 95}


def _olmo2(_layers: int) -> dict[str, Any]:
    return {"eos_token_id": 95}


_OWN: dict[str, Callable[[int], dict[str, Any]]] = {
    "llama": _plain,
    "mistral": _windowed,
    "qwen2": _plain,
    "qwen3": _wide_heads,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "deepseek_v3": _deepseek_v3,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "phi3": _phi3,
    "olmo2": _olmo2,
    "glm4_moe": _glm4_moe,
}
FAMILIES: tuple[str, ...] = tuple(_OWN)
