"""Mixtral and Grok-1: every layer routed over a few wide experts."""

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


def mixtral(f: Fields) -> Model:
    """Mistral's attention, eight experts of which a token passes two."""
    dims = read_dims(
        f, hidden_size=4096, layers=32, heads=32, kv_heads=8, vocab_size=32000, positions=131072
    )
    experts = _experts(f, width=14336, activation="silu")
    windows = read_windows(f, dims.layers, window=None)
    attentions = [dims.attention(window=window) for window in windows]
    return assemble(f, dims, uniform(attentions, experts), tied=False)


def grok_1(f: Fields) -> Model:
    """Four norms a layer, gated GELU experts (xai-org/grok-1, run.py and model.py)."""
    dims = read_dims(
        f,
        hidden_size=6144,
        layers=64,
        heads=48,
        kv_heads=8,
        head_dim=128,
        vocab_size=131072,
        positions=8192,
    )
    experts = _experts(f, width=32768, activation="gelu")
    attentions = [dims.attention()] * dims.layers
    return assemble(f, dims, uniform(attentions, experts, norms=4), tied=True)


def _experts(f: Fields, *, width: int, activation: str) -> Experts:
    """Routed experts of intermediate_size."""
    experts = f.size("num_local_experts", "num_experts", default=8)
    top_k = f.size("num_experts_per_tok", default=2)
    check_top_k(f, top_k, experts, keys=("num_experts_per_tok", "num_local_experts"))
    return Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=read_intermediate(f, default=width),
        activation=f.text("hidden_act", default=activation),
    )


FAMILIES = {"mixtral": mixtral, "grok-1": grok_1}
