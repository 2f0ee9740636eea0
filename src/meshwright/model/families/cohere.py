"""Cohere's Command R: attention beside the MLP under one norm without bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Mlp
from meshwright.model.reading import assemble, read_dims, read_intermediate, uniform

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields


def cohere(f: Fields) -> Model:
    """Command R; with use_qk_norm a norm over all query and all key heads."""
    dims = read_dims(f, hidden_size=8192, layers=40, heads=64, vocab_size=256000, positions=8192)
    bias = f.flag("attention_bias", default=False)
    norm = "full" if f.flag("use_qk_norm", default=False) else ""
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=22528),
        activation=f.text("hidden_act", default="silu"),
    )
    attention = dims.attention(qkv_bias=bias, output_bias=bias, qk_norm=norm)
    blocks = uniform([attention] * dims.layers, mlp, norms=1, parallel=True)
    return assemble(f, dims, blocks, tied=True)


FAMILIES = {"cohere": cohere}
