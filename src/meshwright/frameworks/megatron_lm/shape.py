"""The model's shape, under the names of an HF config.json, and the padded vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_ROUTED = ("moe_intermediate_size", "num_experts_per_tok", "shared_expert_intermediate_size")
_GATED = {"swiglu": "silu", "silu": "silu", "geglu": "gelu", "reglu": "relu", "liglu": "linear"}
_PADDING = 128


def shape(m: Meanings) -> None:
    """Heads, widths and kinds of layers with Megatron's defaults; vocabulary."""
    _attention(m)
    _feed_forward(m)
    _layers(m)
    _vocabulary(m)
    if m.value("use_rotary") and not m.stating("position_embedding_type"):
        m.follow("position_embedding_type", "rope", "use_rotary")
    if m.value("use_rms_norm"):
        m.follow("normalization", "RMSNorm", "use_rms_norm")


def _attention(m: Meanings) -> None:
    """KV heads are as many as heads unless grouped; latent sizes count with MLA only."""
    heads, groups = m.value("num_attention_heads"), m.value("num_query_groups")
    grouped = m.value("group_query_attention")
    if heads is not None:
        if grouped is None:
            grouped = groups is not None
        kv = groups if grouped and groups else heads
        m.follow("num_key_value_heads", kv, "num_query_groups", "num_attention_heads")
    elif m.stating("num_query_groups"):
        m.follow("num_key_value_heads", groups, "num_query_groups")
    m.follow("head_dim_explicit", m.value("head_dim"), "head_dim")
    latent = bool(m.value("multi_latent_attention"))
    if not latent:
        for variable in _LATENT:
            m.given[variable] = Value(value=None, settings=m.stating(variable))
    window = m.value("window_size")
    width = _first_number(window)
    if width is not None and not m.value("window_attn_skip_freq"):
        m.follow("sliding_window", width, "window_size")
    variant = str(m.value("experimental_attention_variant", ""))
    m.follow("linear_attention", "delta" in variant, "experimental_attention_variant")
    m.follow("causal", True)


def _first_number(value: object) -> int | None:
    """The first number of a window "(128,0)" or [128, 0]."""
    if isinstance(value, str):
        head = value.strip("()[] ").split(",")[0].strip()
        return int(head) if head.isdecimal() and len(head) < 10 else None
    if isinstance(value, list | tuple) and value and isinstance(value[0], int):
        return value[0] if value[0] > 0 else None
    return None


def _feed_forward(m: Meanings) -> None:
    """Width (four times hidden, or 8/3 of it when gated) and activation."""
    gate = _GATED.get(str(m.value("glu_activation", "")).lower())
    if gate is not None:
        m.follow("gated_mlp", True, "glu_activation")
        m.follow("hidden_act", gate, "glu_activation")
    if m.value("quick_geglu"):
        m.follow("gated_mlp", True, "quick_geglu")
        m.follow("hidden_act", "quick_gelu", "quick_geglu")
    elif m.value("squared_relu"):
        m.follow("hidden_act", "relu2", "squared_relu")
    elif m.value("hidden_act") is None and gate is None:
        m.follow("hidden_act", "silu" if m.value("gated_mlp") else "gelu", "gated_mlp")
    hidden = m.value("hidden_size")
    if m.value("intermediate_size") is None and isinstance(hidden, int):
        gated = bool(m.value("gated_mlp"))
        width = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
        m.follow("intermediate_size", width, "hidden_size", "gated_mlp")


def _layers(m: Meanings) -> None:
    """Which layers are routed, and the layers that a hybrid pattern counts."""
    pattern = m.value("hybrid_layer_pattern")
    if isinstance(pattern, str):
        main = pattern.split("/")[0]
        count = sum(letter.isalpha() or letter in "*-" for letter in main)
        if count:
            m.follow("num_hidden_layers", count, "hybrid_layer_pattern")
    routed = bool(m.value("num_experts"))
    if not routed:
        for variable in _ROUTED:
            if not m.stating(variable):
                m.given[variable] = Value(value=None)
    elif m.value("moe_intermediate_size") is None and m.value("intermediate_size") is not None:
        m.follow("moe_intermediate_size", m.value("intermediate_size"), "intermediate_size")
    frequency = str(m.value("moe_layer_freq", "1")).strip()
    mixed = routed and frequency not in ("1", "None", "[1]")
    m.follow("mixed_dense_moe", mixed, "moe_layer_freq")


def _vocabulary(m: Meanings) -> None:
    """Rows of embedding and head: a multiple of a number times tp."""
    extra = m.value("extra_vocab_tokens", 0)
    named = m.value("vocab_extra_ids_list")
    if isinstance(named, str) and named:
        extra = len(named.split(","))
        m.follow("extra_vocab_tokens", extra, "vocab_extra_ids_list")
    size = m.value("vocab_size")
    pads = bool(m.value("pads_vocab", True))
    m.follow("pads_vocab", pads, "pads_vocab")
    if m.value("padded_vocab_size") or not isinstance(size, int) or not isinstance(extra, int):
        return
    multiple = m.count("make_vocab_size_divisible_by", _PADDING) * m.count("tp")
    rows = -(-(size + extra) // multiple) * multiple if pads else size + extra
    sources = ("vocab_size", "make_vocab_size_divisible_by", "tp", "extra_vocab_tokens")
    m.follow("padded_vocab_size", rows, *sources)
