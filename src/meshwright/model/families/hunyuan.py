"""Hunyuan: dense, A13B and Large (with keys and values shared between layers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Attention, Experts, Mlp
from meshwright.model.reading import (
    Keys,
    assemble,
    check_top_k,
    read_dims,
    read_intermediate,
    uniform,
)

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields
    from meshwright.model.reading import Dims

_KEYS = Keys(head_dim=("head_dim", "attention_head_dim"))


def dense(f: Fields) -> Model:
    """Llama's shape with query/key norms."""
    dims = _dims(f)
    mlp = Mlp(
        intermediate_size=read_intermediate(f, default=11008),
        activation=f.text("hidden_act", default="silu"),
    )
    return assemble(f, dims, uniform(_attentions(f, dims, qk_norm="head"), mlp), tied=False)


def moe(f: Fields) -> Model:
    """Every layer routed, with one shared expert of intermediate_size."""
    dims = _dims(f)
    width = read_intermediate(f, default=11008)
    routed = _experts(f, width=width, shared=width)
    return assemble(f, dims, uniform(_attentions(f, dims, qk_norm="head"), routed), tied=False)


def large(f: Fields) -> Model:
    """Hunyuan-Large (arXiv 2411.02265): each pair of layers has one set of keys and values."""
    dims = _dims(f)
    width = read_intermediate(f, default=11008)
    experts = f.per_layer_size("moe_intermediate_size", default=width)
    shared = f.per_layer_size("num_shared_expert", default=1) * width
    routed = _experts(f, width=experts, shared=shared)
    norm = "head" if f.flag("use_qk_norm", default=False) else ""
    return assemble(f, dims, uniform(_attentions(f, dims, qk_norm=norm), routed), tied=False)


def _dims(f: Fields) -> Dims:
    """The common sizes."""
    return read_dims(
        f,
        hidden_size=4096,
        layers=32,
        heads=32,
        vocab_size=290943,
        positions=2048,
        keys=_KEYS,
    )


def _attentions(f: Fields, dims: Dims, *, qk_norm: str) -> list[Attention]:
    """Attention of each layer; with use_cla, all but the first of cla_share_factor share."""
    bias = f.flag("attention_bias", default=False)
    share = 1
    if f.owner == "hunyuan" and f.flag("use_cla", default=False):
        share = f.size("cla_share_factor", default=2)
    return [
        dims.attention(qkv_bias=bias, output_bias=bias, qk_norm=qk_norm, shared_kv=i % share != 0)
        for i in range(dims.layers)
    ]


def _experts(f: Fields, *, width: int, shared: int) -> Experts:
    """Routed experts, `shared` wide in total beside them."""
    experts = f.per_layer_size("num_experts", "num_local_experts", default=1)
    top_k = f.per_layer_size("moe_topk", "num_experts_per_tok", default=1)
    check_top_k(f, top_k, experts, keys=("moe_topk", "num_experts"))
    return Experts(
        num_experts=max(experts, 1),
        top_k=max(top_k, 1),
        intermediate_size=width,
        activation=f.text("hidden_act", default="silu"),
        shared_intermediate_size=shared,
    )


FAMILIES = {"hunyuan_v1_dense": dense, "hunyuan_v1_moe": moe, "hunyuan": large}
