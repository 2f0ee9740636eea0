"""Phi 1 to 4 and Phi-3.5-MoE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Experts, Mlp
from meshwright.model.reading import (
    assemble,
    check_top_k,
    read_dims,
    read_intermediate,
    read_windows,
    uniform,
)

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields


def phi(f: Fields) -> Model:
    """Attention and MLP side by side under one LayerNorm; biases everywhere, the head included."""
    dims = read_dims(f, hidden_size=2048, layers=24, heads=32, vocab_size=51200, positions=2048)
    norm = "head" if f.flag("qk_layernorm", default=False) else ""
    attention = dims.attention(
        qkv_bias=True, output_bias=True, qk_norm=norm, qk_norm_bias=bool(norm)
    )
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=8192),
        gated=False,
        activation=f.text("hidden_act", default="gelu_new"),
        bias=True,
    )
    blocks = uniform([attention] * dims.layers, mlp, norms=1, norm_bias=True, parallel=True)
    return assemble(f, dims, blocks, tied=False, final_norm_bias=True, head_bias=True)


def phi3(f: Fields) -> Model:
    """Llama's shape without biases (Phi-3 and Phi-4)."""
    dims = read_dims(f, hidden_size=3072, layers=32, heads=32, vocab_size=32064, positions=4096)
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=8192),
        activation=f.text("hidden_act", default="silu"),
    )
    windows = read_windows(f, dims.layers, window=None)
    blocks = uniform([dims.attention(window=window) for window in windows], mlp)
    return assemble(f, dims, blocks, tied=False)


def phimoe(f: Fields) -> Model:
    """Sixteen experts, two to a token; LayerNorm with biases."""
    dims = read_dims(
        f, hidden_size=4096, layers=32, heads=32, kv_heads=8, vocab_size=32064, positions=131072
    )
    bias = f.flag("attention_bias", default=False)
    experts = f.size("num_local_experts", default=16)
    top_k = f.size("num_experts_per_tok", default=2)
    check_top_k(f, top_k, experts, keys=("num_experts_per_tok", "num_local_experts"))
    routed = Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=read_intermediate(f, default=6400),
        activation=f.text("hidden_act", default="silu"),
    )
    windows = read_windows(f, dims.layers, window=None)
    attentions = [dims.attention(qkv_bias=bias, output_bias=bias, window=w) for w in windows]
    return assemble(
        f,
        dims,
        uniform(attentions, routed, norm_bias=True),
        tied=False,
        final_norm_bias=True,
        head_bias=f.flag("lm_head_bias", default=False),
    )


FAMILIES = {"phi": phi, "phi3": phi3, "phimoe": phimoe}
