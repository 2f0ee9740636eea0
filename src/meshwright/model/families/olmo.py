"""OLMo 1, 2 and 3, and OLMoE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from meshwright.model.reading import Dims


def olmo(f: Fields) -> Model:
    """LayerNorm without weights (arXiv 2402.00838)."""
    dims = _dims(f)
    blocks = uniform([_attention(f, dims)] * dims.layers, _mlp(f), norm_weight=False)
    return assemble(f, dims, blocks, tied=False, final_norm=False)


def olmo2(f: Fields) -> Model:
    """Norms after each half, and over all query and all key heads (arXiv 2501.00656)."""
    dims = _dims(f)
    attention = _attention(f, dims, qk_norm="full")
    return assemble(f, dims, uniform([attention] * dims.layers, _mlp(f)), tied=False)


def olmo3(f: Fields) -> Model:
    """OLMo 2 with three sliding layers to a full one."""
    dims = _dims(f)
    windows = read_windows(f, dims.layers, window=4096, windowed=lambda i: (i + 1) % 4 != 0)
    attentions = [_attention(f, dims, qk_norm="full", window=window) for window in windows]
    return assemble(f, dims, uniform(attentions, _mlp(f)), tied=False)


def olmoe(f: Fields) -> Model:
    """Sixty-four small experts, eight to a token (arXiv 2409.02060)."""
    dims = read_dims(f, hidden_size=2048, layers=16, heads=16, vocab_size=50304, positions=4096)
    experts = f.size("num_experts", "num_local_experts", default=64)
    top_k = f.size("num_experts_per_tok", default=8)
    check_top_k(f, top_k, experts, keys=("num_experts_per_tok", "num_experts"))
    routed = Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=read_intermediate(f, default=2048),
        activation=f.text("hidden_act", default="silu"),
    )
    attention = _attention(f, dims, qk_norm="full")
    return assemble(f, dims, uniform([attention] * dims.layers, routed), tied=False)


def _dims(f: Fields) -> Dims:
    """The sizes that all dense generations default to."""
    return read_dims(f, hidden_size=4096, layers=32, heads=32, vocab_size=50304, positions=2048)


def _attention(f: Fields, dims: Dims, **changes: Any) -> Any:
    """Attention with the biases that attention_bias asks for."""
    bias = f.flag("attention_bias", default=False)
    return dims.attention(qkv_bias=bias, output_bias=bias, **changes)


def _mlp(f: Fields) -> Mlp:
    """The gated feed-forward network."""
    return Mlp(
        intermediate_size=read_intermediate(f, default=11008),
        activation=f.text("hidden_act", default="silu"),
    )


FAMILIES = {"olmo": olmo, "olmo2": olmo2, "olmo3": olmo3, "olmoe": olmoe}
