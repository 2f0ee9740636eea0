"""Nemotron-4 and Minitron: squared ReLU without a gate, LayerNorm with biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Mlp
from meshwright.model.reading import assemble, read_dims, read_intermediate, uniform

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields


def nemotron(f: Fields) -> Model:
    """Nemotron-4 (arXiv 2402.16819)."""
    dims = read_dims(f, hidden_size=6144, layers=32, heads=48, vocab_size=256000, positions=4096)
    bias = f.flag("attention_bias", default=False)
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=24576),
        gated=False,
        activation=f.text("hidden_act", default="relu2"),
        bias=f.flag("mlp_bias", default=False),
    )
    attention = dims.attention(qkv_bias=bias, output_bias=bias)
    blocks = uniform([attention] * dims.layers, mlp, norm_bias=True)
    return assemble(f, dims, blocks, tied=False, final_norm_bias=True)


FAMILIES = {"nemotron": nemotron}
