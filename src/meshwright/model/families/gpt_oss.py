"""GPT-OSS: experts with biases, attention sinks, every other layer sliding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Experts
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


def gpt_oss(f: Fields) -> Model:
    """Every layer routed; router, experts and attention carry biases."""
    dims = read_dims(
        f,
        hidden_size=2880,
        layers=36,
        heads=64,
        kv_heads=8,
        head_dim=64,
        vocab_size=201088,
        positions=131072,
    )
    experts = f.size("num_local_experts", "num_experts", default=128)
    top_k = f.size("num_experts_per_tok", "experts_per_token", default=4)
    check_top_k(f, top_k, experts, keys=("num_experts_per_tok", "num_local_experts"))
    routed = Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=read_intermediate(f, default=2880),
        activation=f.text("hidden_act", default="silu"),
        bias=True,
        router_bias=True,
    )
    bias = f.flag("attention_bias", default=True)
    windows = read_windows(f, dims.layers, window=128, windowed=lambda i: i % 2 == 0)
    attentions = [
        dims.attention(qkv_bias=bias, output_bias=bias, sinks=True, window=w) for w in windows
    ]
    return assemble(f, dims, uniform(attentions, routed), tied=False)


FAMILIES = {"gpt_oss": gpt_oss}
