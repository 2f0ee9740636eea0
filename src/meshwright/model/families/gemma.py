"""Gemma 1, 2 and 3 (text)."""

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


def gemma(f: Fields) -> Model:
    """Wide heads, gated GELU, embedding tied to the head."""
    dims = read_dims(
        f,
        hidden_size=3072,
        layers=28,
        heads=16,
        kv_heads=16,
        head_dim=256,
        vocab_size=256000,
        positions=8192,
    )
    bias = f.flag("attention_bias", default=False)
    attentions = [dims.attention(qkv_bias=bias, output_bias=bias)] * dims.layers
    return assemble(f, dims, uniform(attentions, _mlp(f, default=24576)), tied=True)


def gemma2(f: Fields) -> Model:
    """Norms before and after each half; every other layer slides."""
    dims = read_dims(
        f,
        hidden_size=2304,
        layers=26,
        heads=8,
        kv_heads=4,
        head_dim=256,
        vocab_size=256000,
        positions=8192,
    )
    bias = f.flag("attention_bias", default=False)
    windows = read_windows(f, dims.layers, window=4096, windowed=lambda i: i % 2 == 0)
    attentions = [dims.attention(qkv_bias=bias, output_bias=bias, window=w) for w in windows]
    return assemble(f, dims, uniform(attentions, _mlp(f, default=9216), norms=4), tied=True)


def gemma3(f: Fields) -> Model:
    """Gemma 2's layer with query/key norms; five sliding layers to a full one."""
    dims = read_dims(
        f,
        hidden_size=2304,
        layers=26,
        heads=8,
        kv_heads=4,
        head_dim=256,
        vocab_size=262208,
        positions=131072,
    )
    bias = f.flag("attention_bias", default=False)
    pattern = f.optional_size("sliding_window_pattern", default=6) or 6
    windows = read_windows(f, dims.layers, window=4096, windowed=lambda i: (i + 1) % pattern != 0)
    attentions = [
        dims.attention(qkv_bias=bias, output_bias=bias, qk_norm="head", window=w) for w in windows
    ]
    return assemble(f, dims, uniform(attentions, _mlp(f, default=9216), norms=4), tied=True)


def _mlp(f: Fields, *, default: int) -> Mlp:
    """The gated feed-forward network; both spellings of the activation occur."""
    activation = f.text("hidden_activation", "hidden_act", default="gelu_pytorch_tanh")
    return Mlp(intermediate_size=read_intermediate(f, default=default), activation=activation)


FAMILIES = {"gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3}
