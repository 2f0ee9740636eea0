"""The GPT lineage: GPT-2 (and GPT-3), GPT-NeoX, BLOOM, OPT, MPT, StarCoder 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Mlp
from meshwright.model.reading import (
    GPT_KEYS,
    Keys,
    assemble,
    read_dims,
    read_intermediate,
    read_windows,
    uniform,
)

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields

_BLOOM_KEYS = Keys(
    hidden_size=("hidden_size", "n_embed"),
    layers=("n_layer", "num_hidden_layers"),
    heads=("n_head", "num_attention_heads"),
    positions=("seq_length",),
)
_MPT_KEYS = Keys(
    hidden_size=("d_model", "hidden_size"),
    layers=("n_layers", "num_hidden_layers"),
    heads=("n_heads", "num_attention_heads"),
    positions=("max_seq_len",),
)


def gpt2(f: Fields) -> Model:
    """Learned positions, LayerNorm, GELU, biases everywhere, head tied to the embedding."""
    dims = read_dims(
        f,
        hidden_size=768,
        layers=12,
        heads=12,
        vocab_size=50257,
        positions=1024,
        keys=GPT_KEYS,
    )
    if f.flag("add_cross_attention", default=False):
        f.reject("add_cross_attention", "cannot be modeled: only decoders without cross-attention")
    width = f.optional_size("n_inner", default=None) or 4 * dims.hidden_size
    activation = f.text("activation_function", default="gelu_new")
    mlp = Mlp(intermediate_size=width, gated=False, activation=activation, bias=True)
    attention = dims.attention(qkv_bias=True, output_bias=True, softmax_dropout=_drops(f))
    return assemble(
        f,
        dims,
        uniform([attention] * dims.layers, mlp, norm_bias=True),
        tied=True,
        position_embeddings=dims.max_position_embeddings,
        final_norm_bias=True,
    )


def _drops(f: Fields) -> bool:
    """True where attention probabilities are dropped, 0.1 unless stated."""
    value = f.config.get("attn_pdrop", 0.1)
    return isinstance(value, (int, float)) and value > 0


def gpt_neox(f: Fields) -> Model:
    """Rotary, two LayerNorms, attention beside the MLP, untied head (arXiv 2204.06745)."""
    dims = read_dims(f, hidden_size=6144, layers=44, heads=64, vocab_size=50432, positions=2048)
    bias = f.flag("attention_bias", default=True)
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=24576),
        gated=False,
        activation=f.text("hidden_act", default="gelu"),
        bias=True,
    )
    attention = dims.attention(qkv_bias=bias, output_bias=bias)
    parallel = f.flag("use_parallel_residual", default=True)
    blocks = uniform([attention] * dims.layers, mlp, norm_bias=True, parallel=parallel)
    return assemble(f, dims, blocks, tied=False, final_norm_bias=True)


def bloom(f: Fields) -> Model:
    """ALiBi, a norm after the embedding, biases everywhere (arXiv 2211.05100)."""
    dims = read_dims(
        f, hidden_size=64, layers=2, heads=8, vocab_size=250880, positions=2048, keys=_BLOOM_KEYS
    )
    mlp = Mlp(intermediate_size=4 * dims.hidden_size, gated=False, activation="gelu", bias=True)
    attention = dims.attention(qkv_bias=True, output_bias=True)
    blocks = uniform([attention] * dims.layers, mlp, norm_bias=True)
    return assemble(f, dims, blocks, tied=True, embedding_norm=True, final_norm_bias=True)


def opt(f: Fields) -> Model:
    """Learned positions (two rows more than the context), ReLU (arXiv 2205.01068)."""
    dims = read_dims(f, hidden_size=768, layers=12, heads=12, vocab_size=50272, positions=2048)
    bias = f.flag("enable_bias", default=True)
    affine = f.flag("layer_norm_elementwise_affine", default=True)
    before = f.flag("do_layer_norm_before", default=True)
    dropped = f.flag("_remove_final_layer_norm", default=False)
    mlp = Mlp(
        intermediate_size=read_intermediate(f, "ffn_dim", default=3072),
        gated=False,
        activation=f.text("activation_function", default="relu"),
        bias=bias,
    )
    attention = dims.attention(qkv_bias=bias, output_bias=bias)
    blocks = uniform([attention] * dims.layers, mlp, norm_weight=affine, norm_bias=affine)
    return assemble(
        f,
        dims,
        blocks,
        tied=True,
        position_embeddings=dims.max_position_embeddings + 2,
        final_norm=before and affine and not dropped,
        final_norm_bias=True,
        embedding_size=f.optional_size("word_embed_proj_dim", default=None),
    )


def mpt(f: Fields) -> Model:
    """ALiBi, no biases, norms without bias either; transformers' MLP is four widths always."""
    dims = read_dims(
        f, hidden_size=2048, layers=24, heads=16, vocab_size=50368, positions=2048, keys=_MPT_KEYS
    )
    if f.optional_size("expansion_ratio", default=4, maximum=1024) not in (4, None):
        f.assume("expansion_ratio is taken as 4, as transformers does whatever it says")
    mlp = Mlp(intermediate_size=4 * dims.hidden_size, gated=False, activation="gelu")
    return assemble(f, dims, uniform([dims.attention()] * dims.layers, mlp), tied=True)


def starcoder2(f: Fields) -> Model:
    """Rotary, grouped heads, LayerNorm and biases, sliding window where given."""
    dims = read_dims(
        f, hidden_size=3072, layers=30, heads=24, kv_heads=2, vocab_size=49152, positions=4096
    )
    bias = f.flag("use_bias", default=True)
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=12288),
        gated=False,
        activation=f.text("hidden_act", default="gelu_pytorch_tanh"),
        bias=bias,
    )
    windows = read_windows(f, dims.layers, window=None)
    attentions = [dims.attention(qkv_bias=bias, output_bias=bias, window=w) for w in windows]
    blocks = uniform(attentions, mlp, norm_bias=True)
    return assemble(f, dims, blocks, tied=True, final_norm_bias=True)


FAMILIES = {
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "bloom": bloom,
    "opt": opt,
    "mpt": mpt,
    "starcoder2": starcoder2,
}
