"""Falcon: attention and MLP side by side, one or two norms, one or few key/value heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Mlp
from meshwright.model.reading import (
    Keys,
    assemble,
    check_kv_heads,
    read_dims,
    uniform,
)

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields

_KEYS = Keys(
    hidden_size=("hidden_size", "n_embed"),
    layers=("num_hidden_layers", "n_layer"),
    heads=("num_attention_heads", "n_head"),
    kv_heads=("",),
)


def falcon(f: Fields) -> Model:
    """Falcon 7B's and 40B's layouts, the older spelling of the keys included."""
    dims = read_dims(
        f, hidden_size=4544, layers=32, heads=71, vocab_size=65024, positions=2048, keys=_KEYS
    )
    new = f.flag("new_decoder_architecture", default=False)
    parallel = new or f.flag("parallel_attn", default=True)
    bias = f.flag("bias", default=False)
    width = f.optional_size("ffn_hidden_size", default=None) or 4 * dims.hidden_size
    activation = f.text("activation", default="gelu")
    mlp = Mlp(intermediate_size=width, gated=False, activation=activation, bias=bias)
    attention = dims.attention(
        qkv_bias=bias,
        output_bias=bias,
        num_key_value_heads=_kv_heads(f, heads=dims.heads, new=new),
    )
    blocks = uniform(
        [attention] * dims.layers,
        mlp,
        norms=_norms(f, new=new, parallel=parallel),
        norm_bias=True,
        parallel=parallel,
    )
    return assemble(f, dims, blocks, tied=True, final_norm_bias=True)


def _kv_heads(f: Fields, *, heads: int, new: bool) -> int:
    """Few heads in the new layout, one with multi_query, else as many as query heads."""
    if not new:
        return 1 if f.flag("multi_query", default=True) else heads
    key = f.spelling("num_kv_heads", "n_head_kv")
    kv = f.optional_size(key, default=None) or heads
    heads_key = f.spelling(*_KEYS.heads)
    check_kv_heads(f, key, kv, heads=heads, heads_key=heads_key)
    return kv


def _norms(f: Fields, *, new: bool, parallel: bool) -> int:
    """One norm where attention and MLP share their input, unless the new layout gives each one."""
    given = f.optional_size("num_ln_in_parallel_attn", default=None, maximum=2)
    if not parallel:
        return 2
    return (given or 2) if new else 1


FAMILIES = {"falcon": falcon, "RefinedWeb": falcon, "RefinedWebModel": falcon}
