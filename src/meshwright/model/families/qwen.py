"""Qwen 2, 2.5 and 3, dense and routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Block, Experts, Mlp
from meshwright.model.reading import (
    assemble,
    check_top_k,
    optional_windows,
    read_dims,
    read_intermediate,
    read_windows,
    uniform,
)

if TYPE_CHECKING:
    from meshwright.model.architecture import Attention, Model
    from meshwright.model.fields import Fields


def qwen2(f: Fields) -> Model:
    """Llama's shape with biases on queries, keys and values."""
    dims = read_dims(
        f, hidden_size=4096, layers=32, heads=32, kv_heads=32, vocab_size=151936, positions=32768
    )
    attentions = [
        dims.attention(qkv_bias=True, window=window) for window in optional_windows(f, dims.layers)
    ]
    return assemble(f, dims, uniform(attentions, _mlp(f, default=22016)), tied=False)


def qwen3(f: Fields) -> Model:
    """Heads of 128 with a norm on each query and key head; no biases."""
    dims = read_dims(
        f,
        hidden_size=4096,
        layers=32,
        heads=32,
        kv_heads=32,
        head_dim=128,
        vocab_size=151936,
        positions=32768,
    )
    bias = f.flag("attention_bias", default=False)
    attentions = [
        dims.attention(qkv_bias=bias, output_bias=bias, qk_norm="head", window=window)
        for window in optional_windows(f, dims.layers)
    ]
    return assemble(f, dims, uniform(attentions, _mlp(f, default=22016)), tied=False)


def qwen2_moe(f: Fields) -> Model:
    """Routed experts beside one gated shared expert."""
    dims = read_dims(
        f, hidden_size=2048, layers=24, heads=16, kv_heads=16, vocab_size=151936, positions=32768
    )
    bias = f.flag("qkv_bias", default=True)
    attentions = [dims.attention(qkv_bias=bias, window=w) for w in _even_windows(f, dims.layers)]
    shared = f.size("shared_expert_intermediate_size", default=5632, minimum=0)
    routed = _experts(f, experts=60, top_k=4, width=1408, shared=shared)
    blocks = _place(f, attentions, routed, _mlp(f, default=5632))
    return assemble(f, dims, blocks, tied=False)


def qwen3_moe(f: Fields) -> Model:
    """Routed experts alone, with Qwen 3's attention."""
    dims = read_dims(
        f, hidden_size=2048, layers=24, heads=32, kv_heads=4, vocab_size=151936, positions=32768
    )
    bias = f.flag("attention_bias", default=False)
    sliding = f.flag("use_sliding_window", default=False)
    windows = read_windows(f, dims.layers, window=4096) if sliding else (None,) * dims.layers
    attentions = [
        dims.attention(qkv_bias=bias, output_bias=bias, qk_norm="head", window=w) for w in windows
    ]
    routed = _experts(f, experts=128, top_k=8, width=768)
    return assemble(f, dims, _place(f, attentions, routed, _mlp(f, default=6144)), tied=False)


def _mlp(f: Fields, *, default: int) -> Mlp:
    """The dense feed-forward network."""
    return Mlp(
        intermediate_size=read_intermediate(f, default=default),
        activation=f.text("hidden_act", default="silu"),
    )


def _even_windows(f: Fields, layers: int) -> tuple[int | None, ...]:
    """Qwen2-MoE's windows: where used, the even layers below max_window_layers."""
    if not f.flag("use_sliding_window", default=False):
        return (None,) * layers
    last = f.size("max_window_layers", default=28, minimum=0)
    return read_windows(f, layers, window=4096, windowed=lambda i: i % 2 == 0 and i < last)


def _experts(f: Fields, *, experts: int, top_k: int, width: int, shared: int = 0) -> Experts:
    """The routed experts; numbers given are the family's defaults."""
    count = f.size("num_experts", "num_local_experts", default=experts, minimum=0)
    chosen = f.size("num_experts_per_tok", default=top_k)
    if count:
        check_top_k(f, chosen, count, keys=("num_experts_per_tok", "num_experts"))
    return Experts(
        num_experts=count,
        top_k=chosen,
        intermediate_size=f.size("moe_intermediate_size", default=width),
        activation=f.text("hidden_act", default="silu"),
        shared_intermediate_size=shared,
        shared_gate=shared > 0,
    )


def _place(f: Fields, attentions: list[Attention], routed: Experts, dense: Mlp) -> list[Block]:
    """Routed layers at every decoder_sparse_step, except those that mlp_only_layers names."""
    step = f.size("decoder_sparse_step", default=1)
    only = f.indices("mlp_only_layers", below=len(attentions)) or ()
    return [
        Block(
            attention=attention,
            feed_forward=(
                routed if routed.num_experts and i not in only and (i + 1) % step == 0 else dense
            ),
        )
        for i, attention in enumerate(attentions)
    ]


FAMILIES = {
    "qwen2": qwen2,
    "qwen2_5": qwen2,
    "qwen2_moe": qwen2_moe,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
}
