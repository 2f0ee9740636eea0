"""GLM-4, GLM-4-0414, GLM-4.5 and the older ChatGLM spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Block, Experts, Mlp
from meshwright.model.families.deepseek import read_dense_first, read_mtp
from meshwright.model.reading import (
    Keys,
    assemble,
    check_kv_heads,
    check_top_k,
    read_dims,
    read_intermediate,
    uniform,
)

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields

_CHATGLM_KEYS = Keys(layers=("num_layers",), head_dim=("kv_channels",), positions=("seq_length",))


def glm(f: Fields) -> Model:
    """Two key/value heads, biases on queries, keys and values."""
    return _glm(f, norms=2)


def glm4(f: Fields) -> Model:
    """GLM with norms after each half as well."""
    return _glm(f, norms=4)


def _glm(f: Fields, *, norms: int) -> Model:
    """A dense GLM."""
    dims = read_dims(
        f,
        hidden_size=4096,
        layers=40,
        heads=32,
        kv_heads=2,
        head_dim=128,
        vocab_size=151552,
        positions=131072,
    )
    attention = dims.attention(qkv_bias=f.flag("attention_bias", default=True))
    blocks = uniform([attention] * dims.layers, _mlp(f, default=13696), norms=norms)
    return assemble(f, dims, blocks, tied=False)


def chatglm(f: Fields) -> Model:
    """GLM-4 under the keys of its own repository (THUDM/glm-4-9b, configuration_chatglm.py)."""
    dims = read_dims(
        f,
        hidden_size=4096,
        layers=28,
        heads=32,
        head_dim=128,
        vocab_size=65024,
        positions=2048,
        keys=_CHATGLM_KEYS,
    )
    kv = dims.heads
    if f.flag("multi_query_attention", default=False):
        kv = f.size("multi_query_group_num", default=1)
        keys = ("multi_query_group_num", "num_attention_heads")
        check_kv_heads(f, keys[0], kv, heads=dims.heads, heads_key=keys[1])
    bias = f.flag("add_bias_linear", default=False)
    qkv_bias = bias or f.flag("add_qkv_bias", default=False)
    mlp = Mlp(intermediate_size=read_intermediate(f, "ffn_hidden_size", default=13696), bias=bias)
    attention = dims.attention(qkv_bias=qkv_bias, output_bias=bias, num_key_value_heads=kv)
    return assemble(f, dims, uniform([attention] * dims.layers, mlp), tied=False)


def glm4_moe(f: Fields) -> Model:
    """GLM-4.5: dense first layers, then routed and shared experts."""
    dims = read_dims(
        f,
        hidden_size=4096,
        layers=46,
        heads=96,
        kv_heads=8,
        vocab_size=151552,
        positions=131072,
    )
    attention = dims.attention(
        qkv_bias=f.flag("attention_bias", default=False),
        qk_norm="head" if f.flag("use_qk_norm", default=False) else "",
    )
    dense, routed = _mlp(f, default=10944), _experts(f)
    first = read_dense_first(f, dims, default=1)
    blocks = [
        Block(attention=attention, feed_forward=routed if i >= first else dense)
        for i in range(dims.layers)
    ]
    return assemble(f, dims, blocks, tied=False, mtp=read_mtp(f, blocks[-1]))


def _mlp(f: Fields, *, default: int) -> Mlp:
    """The dense feed-forward network."""
    return Mlp(
        intermediate_size=read_intermediate(f, default=default),
        activation=f.text("hidden_act", default="silu"),
    )


def _experts(f: Fields) -> Experts:
    """GLM-4.5's experts."""
    width = f.size("moe_intermediate_size", default=1408)
    experts = f.size("n_routed_experts", default=128)
    top_k = f.size("num_experts_per_tok", default=8)
    check_top_k(f, top_k, experts, keys=("num_experts_per_tok", "n_routed_experts"))
    return Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=width,
        activation=f.text("hidden_act", default="silu"),
        correction_bias=True,
        shared_intermediate_size=f.size("n_shared_experts", default=1, minimum=0) * width,
    )


FAMILIES = {"glm": glm, "glm4": glm4, "glm4_moe": glm4_moe, "chatglm": chatglm}
