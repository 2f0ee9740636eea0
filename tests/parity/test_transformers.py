"""Parameter counts equal those of transformers' own models, built on the meta device."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.model.catalogue import preset_config, presets
from meshwright.model.config import model_from_config, readers
from meshwright.model.count import parameters

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore"),  # transformers warns of many things beside the point
]

# model types that transformers reads under another name, because the shape is the same
SAME_SHAPE = {"kimi_k2": "deepseek_v3", "qwen2_5": "qwen2"}
NOT_THERE = {"chatglm", "grok-1", "hunyuan", "internlm2", "RefinedWeb", "RefinedWebModel"}

# their default configurations cannot be built, or make no sense
NO_DEFAULTS = {
    "deepseek_v2",  # num_experts_per_tok is None
    "glm4_moe",  # 96 heads do not divide 4096
    "hunyuan_v1_dense",  # head_dim is None
    "hunyuan_v1_moe",  # head_dim is None
    "nemotron",  # num_key_value_heads is None
}

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "vocab_size": 100,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT = {"n_embd": 64, "n_layer": 3, "n_head": 8, "vocab_size": 100, "n_positions": 32}
LATENT = {
    **SIZES,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
    "n_group": 1,
    "topk_group": 1,
}

# base configuration and changes to it, each one variant
VARIANTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "llama": (
        GROUPED,
        [
            {"tie_word_embeddings": True},
            {"attention_bias": True},
            {"mlp_bias": True},
            {"head_dim": 24},
            {"num_key_value_heads": None},
        ],
    ),
    "mistral": (GROUPED, [{"head_dim": 16}, {"tie_word_embeddings": True}]),
    "granite": (GROUPED, [{"attention_bias": True, "mlp_bias": True}]),
    "smollm3": ({**GROUPED, "pad_token_id": 0}, [{"attention_bias": True, "mlp_bias": True}]),
    "mixtral": (
        {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
        [{"head_dim": 16}, {"tie_word_embeddings": True}],
    ),
    "llama4_text": (
        {**GROUPED, "head_dim": 16, "intermediate_size_mlp": 128, "num_local_experts": 4},
        [
            {"interleave_moe_layer_step": 2},
            {"moe_layers": [1, 4]},
            {"attention_bias": True},
            {"tie_word_embeddings": True, "use_qk_norm": False},
        ],
    ),
    "qwen2": (
        GROUPED,
        [{"tie_word_embeddings": True}, {"use_sliding_window": True, "max_window_layers": 2}],
    ),
    "qwen3": (GROUPED, [{"attention_bias": True}, {"head_dim": 24, "tie_word_embeddings": True}]),
    "qwen2_moe": (
        {
            **GROUPED,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
        [
            {"qkv_bias": False},
            {"decoder_sparse_step": 2},
            {"mlp_only_layers": [0, 3]},
            {"num_experts": 0},
        ],
    ),
    "qwen3_moe": (
        {**GROUPED, "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2},
        [
            {"head_dim": 24},
            {"attention_bias": True},
            {"decoder_sparse_step": 3, "mlp_only_layers": [2]},
            {"tie_word_embeddings": True},
        ],
    ),
    "gemma": (GROUPED, [{"attention_bias": True}, {"head_dim": 24}]),
    "gemma2": (GROUPED, [{"attention_bias": True}, {"head_dim": 24}]),
    "gemma3_text": (
        GROUPED,
        [{"attention_bias": True}, {"tie_word_embeddings": False, "head_dim": 24}],
    ),
    "phi": (SIZES, [{"qk_layernorm": True}, {"num_key_value_heads": 4}]),
    "phi3": (
        {**GROUPED, "pad_token_id": 0},
        [{"tie_word_embeddings": True}, {"num_key_value_heads": None}],
    ),
    "phimoe": (
        {**GROUPED, "num_local_experts": 4},
        [{"attention_bias": True}, {"lm_head_bias": True}],
    ),
    "deepseek_v2": (
        LATENT,
        [
            {"q_lora_rank": None},
            {"first_k_dense_replace": 2},
            {"attention_bias": True},
            {"mlp_bias": True, "first_k_dense_replace": 6},
        ],
    ),
    "deepseek_v3": (
        LATENT,
        [
            {"q_lora_rank": None, "first_k_dense_replace": 1},
            {"attention_bias": True},
            {"num_nextn_predict_layers": 2},
            {"tie_word_embeddings": True, "n_shared_experts": 2},
        ],
    ),
    "gpt_oss": (
        {**GROUPED, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
        [{"attention_bias": False}, {"tie_word_embeddings": True}],
    ),
    "glm": ({**GROUPED, "pad_token_id": 0}, [{"attention_bias": False}, {"head_dim": 16}]),
    "glm4": ({**GROUPED, "pad_token_id": 0}, [{"attention_bias": False}]),
    "glm4_moe": (
        {
            **GROUPED,
            "n_routed_experts": 8,
            "moe_intermediate_size": 24,
            "num_experts_per_tok": 2,
            "head_dim": 16,
        },
        [
            {"attention_bias": True},
            {"use_qk_norm": True},
            {"first_k_dense_replace": 3, "n_shared_experts": 2},
        ],
    ),
    "nemotron": (GROUPED, [{"attention_bias": True, "mlp_bias": True}, {"head_dim": 16}]),
    "falcon": (
        {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 100},
        [
            {"new_decoder_architecture": True, "num_kv_heads": 2},
            {
                "new_decoder_architecture": True,
                "num_kv_heads": 2,
                "num_ln_in_parallel_attn": 1,
            },
            {"parallel_attn": False, "multi_query": False, "bias": True, "alibi": True},
            {"ffn_hidden_size": 80, "tie_word_embeddings": False},
        ],
    ),
    "gpt2": (GPT, [{"n_inner": 80}, {"tie_word_embeddings": False}]),
    "gpt_neox": (
        SIZES,
        [
            {"attention_bias": False},
            {"use_parallel_residual": False},
            {"tie_word_embeddings": True},
        ],
    ),
    "bloom": ({"hidden_size": 64, "n_layer": 3, "n_head": 8, "vocab_size": 100}, []),
    "opt": (
        {
            "hidden_size": 64,
            "ffn_dim": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "vocab_size": 100,
            "max_position_embeddings": 32,
        },
        [
            {"word_embed_proj_dim": 32},
            {"do_layer_norm_before": False},
            {"enable_bias": False},
            {"layer_norm_elementwise_affine": False},
            {"_remove_final_layer_norm": True},
        ],
    ),
    "mpt": (
        {"d_model": 64, "n_layers": 3, "n_heads": 8, "vocab_size": 100, "max_seq_len": 32},
        [{"expansion_ratio": 2}],
    ),
    "starcoder2": (GROUPED, [{"use_bias": False}, {"tie_word_embeddings": False}]),
    "hunyuan_v1_dense": (
        {**GROUPED, "head_dim": 8},  # transformers 5.24 cannot build it without a head_dim
        [{"attention_bias": True}, {"head_dim": 16}],
    ),
    "hunyuan_v1_moe": (
        {**GROUPED, "head_dim": 8, "num_experts": 4, "moe_topk": 2},
        [{"attention_bias": True}, {"moe_topk": [2] * 6}, {"head_dim": 16}],
    ),
    "olmo": (GROUPED, [{"attention_bias": True}, {"tie_word_embeddings": True}]),
    "olmo2": (GROUPED, [{"attention_bias": True}, {"num_key_value_heads": None}]),
    "olmo3": (GROUPED, [{"attention_bias": True}]),
    "olmoe": (
        {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2},
        [{"attention_bias": True}],
    ),
    "cohere": (GROUPED, [{"attention_bias": True}, {"use_qk_norm": True}]),
}

CASES = [
    pytest.param(kind, {**base, **change}, id=f"{kind}-{'-'.join(change) or 'plain'}")
    for kind, (base, changes) in VARIANTS.items()
    for change in ({}, *changes)
]


def count_of_transformers(kind: str, config: dict[str, Any]) -> int:
    """Parameters of transformers' causal language model, a tied matrix once."""
    kind = SAME_SHAPE.get(kind, kind)
    own = transformers.CONFIG_MAPPING[kind](**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(own)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_small_configuration(kind: str, config: dict[str, Any]) -> None:
    model = model_from_config({"model_type": kind, **config})
    assert parameters(model, mtp=False).total == count_of_transformers(kind, config)


@pytest.mark.parametrize("kind", [k for k in VARIANTS if k not in NO_DEFAULTS])
def test_defaults_of_absent_keys(kind: str) -> None:
    model = model_from_config({"text_config": {"model_type": kind}})
    assert parameters(model, mtp=False).total == count_of_transformers(kind, {})


def test_every_family_that_transformers_has_is_compared() -> None:
    assert set(readers()) - set(SAME_SHAPE) - NOT_THERE == set(VARIANTS)
    assert not NOT_THERE & set(transformers.CONFIG_MAPPING)


@pytest.mark.parametrize("name", presets())
def test_full_size_preset(name: str) -> None:
    config = preset_config(name)
    kind = config.pop("model_type")
    if kind in NOT_THERE:
        pytest.skip(f"transformers has no {kind}")
    model = model_from_config({"model_type": kind, **config})
    assert parameters(model, mtp=False).total == count_of_transformers(kind, config)
