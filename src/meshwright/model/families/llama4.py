"""Llama 4: routed layers between dense ones, a shared expert, chunked and full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.model.architecture import Attention, Block, Experts, Mlp
from meshwright.model.fields import MAX_LENGTH
from meshwright.model.reading import LAYER_TYPES, assemble, check_top_k, read_dims

if TYPE_CHECKING:
    from meshwright.model.architecture import Model
    from meshwright.model.fields import Fields
    from meshwright.model.reading import Dims


def llama4(f: Fields) -> Model:
    """The text decoder; norms of queries and keys carry no weight."""
    dims = read_dims(
        f,
        hidden_size=5120,
        layers=48,
        heads=40,
        kv_heads=8,
        head_dim=128,
        vocab_size=202048,
        positions=131072,
    )
    activation = f.text("hidden_act", default="silu")
    routed = _experts(f, activation)
    dense = Mlp(
        intermediate_size=f.size("intermediate_size_mlp", default=16384), activation=activation
    )
    moe_layers = _moe_layers(f, dims.layers)
    blocks = [
        Block(attention=attention, feed_forward=routed if i in moe_layers else dense)
        for i, attention in enumerate(_attentions(f, dims))
    ]
    return assemble(f, dims, blocks, tied=False)


def _experts(f: Fields, activation: str) -> Experts:
    """The routed experts and the shared one, all of intermediate_size."""
    width = f.size("intermediate_size", default=8192)
    experts = f.size("num_local_experts", default=16)
    top_k = f.size("num_experts_per_tok", default=1)
    check_top_k(f, top_k, experts, keys=("num_experts_per_tok", "num_local_experts"))
    return Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=width,
        activation=activation,
        shared_intermediate_size=width,
    )


def _moe_layers(f: Fields, layers: int) -> frozenset[int]:
    """Which layers are routed: a list, or the last of every interleave_moe_layer_step."""
    step = f.size("interleave_moe_layer_step", default=1)
    given = f.indices("moe_layers", below=layers)
    return frozenset(given if given is not None else range(step - 1, layers, step))


def _attentions(f: Fields, dims: Dims) -> list[Attention]:
    """Chunked attention, but full in the layers without rotary embedding (every fourth)."""
    bias = f.flag("attention_bias", default=False)
    chunk = f.optional_size("attention_chunk_size", default=8192, maximum=MAX_LENGTH)
    kinds = f.choices("layer_types", length=dims.layers, allowed=LAYER_TYPES)
    if kinds is None:
        rotary = _rotary_layers(f, dims.layers)
        kinds = tuple("chunked_attention" if r else "full_attention" for r in rotary)
    windows = [None if kind == "full_attention" else chunk for kind in kinds]
    return [
        dims.attention(qkv_bias=bias, output_bias=bias, window=w, chunked=w is not None)
        for w in windows
    ]


def _rotary_layers(f: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have rotary embedding; no_rope_layers holds 1 for those that do."""
    interval = f.size("no_rope_layer_interval", default=4)
    given = f.indices("no_rope_layers", below=2)
    if not given:
        return tuple((i + 1) % interval != 0 for i in range(layers))
    if len(given) != layers:
        reason = f"has {len(given)} entries for {layers} layers"
        f.conflict("no_rope_layers", reason, beside=("num_hidden_layers",))
        return (True,) * layers
    return tuple(value == 1 for value in given)


FAMILIES = {"llama4_text": llama4}
