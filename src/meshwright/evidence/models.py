"""The model of a row, from its dimensions and what its name is publicly known to be."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.evidence.row import CannotExpress
from meshwright.model.architecture import Attention, Block, Experts, Mlp, Model
from meshwright.model.generic import merge_runs, moe_pattern

if TYPE_CHECKING:
    from meshwright.evidence.habits import Habits
    from meshwright.evidence.row import Row

COARSE_EXPERTS = 16
VOCAB_MULTIPLE = 128  # Megatron's --make-vocab-size-divisible-by


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a family's name says beyond the dimensions (public configurations).

    `biases` puts one on every projection and norm. Layers have the sliding `window`, or the chunk
    of that size, except one in `full_every`, which sees everything.
    """

    pattern: str
    biases: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    learned_positions: bool = False
    embedding_norm: bool = False
    parallel: bool = False
    gated: bool | None = None
    activation: str = "silu"
    qk_norm: str = ""
    norms: int = 2
    sinks: bool = False
    window: int | None = None
    full_every: int = 0
    chunked: bool = False
    interleaved: bool = False
    shared_gate: bool = False
    router_bias: bool = False


FAMILIES: tuple[Traits, ...] = (
    Traits(
        pattern=r"gpt-?oss",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        router_bias=True,
        sinks=True,
        window=128,
        full_every=2,
    ),
    Traits(pattern=r"gpt-?(neox|j)|pythia", biases=True, parallel=True, activation="gelu"),
    Traits(pattern=r"gpt|\bopt\b|mpt", biases=True, learned_positions=True, activation="gelu"),
    Traits(pattern=r"bloom", biases=True, embedding_norm=True, activation="gelu"),
    Traits(pattern=r"falcon", norm_bias=True, parallel=True, activation="gelu"),
    Traits(pattern=r"nemotron", norm_bias=True, gated=False, activation="relu2"),
    Traits(pattern=r"gemma-?2", gated=True, norms=4, window=4096, full_every=2, activation="gelu"),
    Traits(
        pattern=r"gemma-?3",
        gated=True,
        norms=4,
        window=1024,
        full_every=6,
        qk_norm="head",
        activation="gelu",
    ),
    Traits(pattern=r"gemma", gated=True, activation="gelu"),
    Traits(pattern=r"llama-?4", window=8192, chunked=True, full_every=4, interleaved=True),
    Traits(pattern=r"qwen-?3", qk_norm="head"),
    Traits(pattern=r"qwen.*-a\d+", qkv_bias=True, shared_gate=True),
    Traits(pattern=r"qwen|glm", qkv_bias=True),
    Traits(pattern=r"internlm-|internlm_?7b", qkv_bias=True, output_bias=True),
    Traits(pattern=r"phi-?[12]", biases=True, parallel=True, activation="gelu"),
    Traits(pattern=r"grok", activation="gelu"),
)


def model_of(row: Row, habits: Habits) -> Model:
    """The model of a row.

    Raises CannotExpress for layers other than attention with an MLP or experts, and where a
    dimension is missing.
    """
    if row.says("arch", r"mamba|ssm|hybrid|sparse|linear") or row.says("model", r"mamba"):
        raise CannotExpress(f"architecture {row.text('arch')!r} has layers that are not modeled")
    traits = _traits(row)
    layers = row.needed("layers")
    attention = _attention(row, traits)
    blocks = [
        _block(row, traits, attention=_windowed(attention, traits, i), is_moe=routed)
        for i, routed in enumerate(_routing(row, traits, layers))
    ]
    mtp = 1 if row.says("notes", r"mtp (layer presumably included|module trained)") else 0
    return Model(
        name=row.text("model"),
        hidden_size=row.needed("hidden"),
        vocab_size=_vocabulary(row, habits),
        runs=merge_runs(blocks),
        tie_word_embeddings=row.integer("tied_embed") == 1,
        position_embeddings=row.needed("seq_len") if traits.learned_positions else 0,
        embedding_norm=traits.embedding_norm,
        final_norm_bias=traits.norm_bias or traits.biases,
        mtp=merge_runs(blocks[-1:] * mtp),
        family=row.text("arch"),
        source="dimensions of a published run",
    )


def _traits(row: Row) -> Traits:
    """The traits of the family that the name belongs to, or plain ones."""
    name = row.text("model")
    found = [t for t in FAMILIES if re.search(t.pattern, name, re.IGNORECASE)]
    plain = Traits(pattern="", activation="silu" if row.integer("gated_ffn") else "gelu")
    traits = found[0] if found else plain
    return replace(
        traits, parallel=traits.parallel or row.says("notes", r"parallel transformer block")
    )


def _vocabulary(row: Row, habits: Habits) -> int:
    """Rows of the embedding, padded as Megatron pads them."""
    vocab = row.needed("vocab")
    return -(-vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE if habits.megatron else vocab


def _attention(row: Row, traits: Traits) -> Attention:
    """The attention of every layer, windows aside."""
    if row.says("arch", r"mla") or row.says("model", r"deepseek-?v?[23]-?(\d{3}|v|$)|kimi"):
        return _latent(row)
    heads = row.needed("heads")
    width = row.integer("head_dim") or row.needed("hidden") // heads
    return Attention(
        num_attention_heads=heads,
        num_key_value_heads=row.integer("kv_heads") or heads,
        head_dim=width,
        v_head_dim=width,
        qkv_bias=traits.qkv_bias or traits.biases,
        output_bias=traits.output_bias or traits.biases,
        qk_norm=traits.qk_norm,
        sinks=traits.sinks,
    )


def _latent(row: Row) -> Attention:
    """Multi-head latent attention with the ranks that all published models of it share.

    Source: config.json of DeepSeek-V2, V2-Lite (no query rank), V3 and Kimi-K2.
    """
    heads = row.needed("heads")
    return Attention(
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=192,
        v_head_dim=128,
        q_lora_rank=None if row.says("model", r"lite") else 1536,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
    )


def _windowed(attention: Attention, traits: Traits, index: int) -> Attention:
    """The attention of layer `index`: windowed unless it is one of the full ones."""
    is_full = traits.window is None or (
        traits.full_every > 0 and (index + 1) % traits.full_every == 0
    )
    if is_full:
        return attention
    return replace(attention, window=traits.window, chunked=traits.chunked)


def _routing(row: Row, traits: Traits, layers: int) -> tuple[bool, ...]:
    """Which layers are routed."""
    if not row.integer("experts"):
        return (False,) * layers
    moe_layers = row.integer("moe_layers") or layers
    if moe_layers > layers:
        raise CannotExpress(f"moe_layers is {moe_layers}, above layers {layers}")
    return moe_pattern(layers, moe_layers, interleaved=traits.interleaved)


def _block(row: Row, traits: Traits, *, attention: Attention, is_moe: bool) -> Block:
    """One layer."""
    return Block(
        attention=attention,
        feed_forward=_experts(row, traits) if is_moe else _mlp(row, traits),
        norms=traits.norms,
        norm_bias=traits.norm_bias or traits.biases,
        parallel=traits.parallel,
    )


def _gated(row: Row, traits: Traits) -> bool:
    """Whether the feed-forward network has three matrices."""
    return traits.gated if traits.gated is not None else row.integer("gated_ffn") != 0


def _mlp(row: Row, traits: Traits) -> Mlp:
    """The dense feed-forward network."""
    return Mlp(
        intermediate_size=row.needed("ffn"),
        gated=_gated(row, traits),
        activation=traits.activation,
        bias=traits.mlp_bias or traits.biases,
    )


def _experts(row: Row, traits: Traits) -> Experts:
    """The routed feed-forward network."""
    return Experts(
        num_experts=row.needed("experts"),
        top_k=row.needed("topk"),
        intermediate_size=_expert_width(row),
        gated=_gated(row, traits),
        activation=traits.activation,
        bias=traits.mlp_bias or traits.biases,
        router_bias=traits.router_bias,
        shared_intermediate_size=row.integer("shared_expert_ffn") or 0,
        shared_gate=traits.shared_gate,
    )


def _expert_width(row: Row) -> int:
    """Width of one expert; coarse experts (Mixtral, Grok) are as wide as the dense network."""
    stated = row.integer("expert_ffn")
    if stated:
        return stated
    if row.needed("experts") > COARSE_EXPERTS:
        raise CannotExpress("expert_ffn is not stated")
    return row.needed("ffn")
