"""A decoder-only transformer from its dimensions alone, where no configuration file exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.model.architecture import Attention, Block, BlockRun, Experts, Mlp, Model

if TYPE_CHECKING:
    from collections.abc import Iterable


def merge_runs(blocks: Iterable[Block]) -> tuple[BlockRun, ...]:
    """Consecutive equal blocks as runs, in order."""
    runs: list[BlockRun] = []
    for block in blocks:
        if runs and runs[-1].block == block:
            runs[-1] = BlockRun(block=block, count=runs[-1].count + 1)
        else:
            runs.append(BlockRun(block=block, count=1))
    return tuple(runs)


def moe_pattern(layers: int, moe_layers: int, *, interleaved: bool = False) -> tuple[bool, ...]:
    """Which of `layers` layers are routed: the last `moe_layers`, or evenly spread ones.

    Spread layers end each stride, as Llama 4 places them (layer i is routed when
    (i + 1) * moe_layers / layers passes a whole number).
    """
    if not interleaved:
        return tuple(i >= layers - moe_layers for i in range(layers))
    return tuple((i + 1) * moe_layers // layers > i * moe_layers // layers for i in range(layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What a decoder-only transformer is made of.

    The last `moe_layers` (or, interleaved, evenly spread ones; all by default) are routed where
    there are `experts`. `intermediate_size` is that of dense layers, `expert_intermediate_size`
    that of one expert (default `intermediate_size`), `shared_intermediate_size` the total over
    shared experts. `head_dim` defaults to hidden_size / heads, `v_head_dim` to `head_dim`,
    `kv_heads` to `heads`. With `kv_lora_rank` attention is latent and `head_dim` its whole
    query/key width. `bias` puts a bias on every projection and norm, as GPT-2 does. `mtp_layers`
    blocks equal to the last follow the model.
    """

    layers: int
    hidden_size: int
    heads: int
    vocab_size: int
    intermediate_size: int = 0
    kv_heads: int | None = None
    head_dim: int | None = None
    v_head_dim: int | None = None
    gated: bool = True
    activation: str = "silu"
    bias: bool = False
    tied: bool = False
    norms: int = 2
    qk_norm: str = ""
    parallel: bool = False
    position_embeddings: int = 0
    window: int | None = None
    experts: int = 0
    top_k: int = 0
    expert_intermediate_size: int | None = None
    shared_intermediate_size: int = 0
    moe_layers: int | None = None
    moe_interleaved: bool = False
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int = 0
    mtp_layers: int = 0
    name: str = ""
    family: str = "generic"
    source: str = "dimensions given"


def decoder(**dimensions: Any) -> Model:
    """The model of these dimensions; keywords are the fields of `Dimensions`."""
    d = Dimensions(**dimensions)
    blocks = _blocks(d)
    return Model(
        name=d.name,
        hidden_size=d.hidden_size,
        vocab_size=d.vocab_size,
        runs=merge_runs(blocks),
        tie_word_embeddings=d.tied,
        position_embeddings=d.position_embeddings,
        final_norm_bias=d.bias,
        mtp=merge_runs(blocks[-1:] * d.mtp_layers),
        family=d.family,
        source=d.source,
    )


def _blocks(d: Dimensions) -> list[Block]:
    """Every layer in order."""
    attention, dense, routed = _attention(d), _dense(d), _routed(d)
    count = (d.layers if d.moe_layers is None else d.moe_layers) if d.experts else 0
    return [
        Block(
            attention=attention,
            feed_forward=routed if is_moe else dense,
            norms=d.norms,
            norm_bias=d.bias,
            parallel=d.parallel,
        )
        for is_moe in moe_pattern(d.layers, count, interleaved=d.moe_interleaved)
    ]


def _attention(d: Dimensions) -> Attention:
    """The attention of every layer."""
    width = d.head_dim if d.head_dim is not None else d.hidden_size // d.heads
    return Attention(
        num_attention_heads=d.heads,
        num_key_value_heads=d.kv_heads or d.heads,
        head_dim=width,
        v_head_dim=d.v_head_dim if d.v_head_dim is not None else width,
        qkv_bias=d.bias,
        output_bias=d.bias,
        qk_norm=d.qk_norm,
        window=d.window,
        q_lora_rank=d.q_lora_rank,
        kv_lora_rank=d.kv_lora_rank,
        qk_rope_head_dim=d.qk_rope_head_dim,
    )


def _dense(d: Dimensions) -> Mlp:
    """The feed-forward network of dense layers."""
    return Mlp(
        intermediate_size=d.intermediate_size,
        gated=d.gated,
        activation=d.activation,
        bias=d.bias,
    )


def _routed(d: Dimensions) -> Experts:
    """The experts of routed layers."""
    return Experts(
        num_experts=d.experts,
        top_k=d.top_k,
        intermediate_size=d.expert_intermediate_size or d.intermediate_size,
        gated=d.gated,
        activation=d.activation,
        bias=d.bias,
        shared_intermediate_size=d.shared_intermediate_size,
    )
