"""Llama 2 and 3 and the decoders of the same shape: Mistral, Granite, SmolLM3, InternLM2, Yi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Mlp
from meshwright.model.reading import (
    assemble,
    read_dims,
    read_intermediate,
    read_windows,
    uniform,
)

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields
    from meshwright.model.reading import Dims


def llama(f: Fields) -> Model:
    """Pre-norm RMSNorm, rotary, gated MLP; biases where attention_bias or mlp_bias say so."""
    dims = read_dims(f, hidden_size=4096, layers=32, heads=32, vocab_size=32000, positions=2048)
    return _llama_like(f, dims, intermediate_size=11008, window=None)


def mistral(f: Fields) -> Model:
    """Llama's shape with grouped heads; every layer slides over sliding_window keys."""
    dims = read_dims(
        f, hidden_size=4096, layers=32, heads=32, kv_heads=8, vocab_size=32000, positions=131072
    )
    return _llama_like(f, dims, intermediate_size=14336, window=4096)


def smollm3(f: Fields) -> Model:
    """Llama's shape; rotary is left out of some layers, which changes no size."""
    dims = read_dims(
        f, hidden_size=2048, layers=36, heads=16, kv_heads=4, vocab_size=128256, positions=32768
    )
    return _llama_like(f, dims, intermediate_size=11008, window=None, tied=True)


def _llama_like(
    f: Fields, dims: Dims, *, intermediate_size: int, window: int | None, tied: bool = False
) -> Model:
    """A Llama-like decoder with the given defaults."""
    bias = f.flag("attention_bias", default=False)
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=intermediate_size),
        activation=f.text("hidden_act", default="silu"),
        bias=f.flag("mlp_bias", default=False),
    )
    windows = read_windows(f, dims.layers, window=window) if window else (None,) * dims.layers
    attentions = [dims.attention(qkv_bias=bias, output_bias=bias, window=w) for w in windows]
    return assemble(f, dims, uniform(attentions, mlp), tied=tied)


FAMILIES = {
    "llama": llama,
    "mistral": mistral,
    "granite": llama,
    "smollm3": smollm3,
    "internlm2": llama,
}
