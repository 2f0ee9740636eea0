"""A decoder-only transformer from its dimensions alone, where no configuration file exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def decoder(
    *,
    layers: int,
    hidden_size: int,
    heads: int,
    vocab_size: int,
    intermediate_size: int = 0,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    v_head_dim: int | None = None,
    gated: bool = True,
    activation: str = "silu",
    bias: bool = False,
    tied: bool = False,
    norms: int = 2,
    qk_norm: str = "",
    parallel: bool = False,
    position_embeddings: int = 0,
    window: int | None = None,
    experts: int = 0,
    top_k: int = 0,
    expert_intermediate_size: int | None = None,
    shared_intermediate_size: int = 0,
    moe_layers: int | None = None,
    moe_interleaved: bool = False,
    q_lora_rank: int | None = None,
    kv_lora_rank: int | None = None,
    qk_rope_head_dim: int = 0,
    mtp_layers: int = 0,
    name: str = "",
    family: str = "generic",
    source: str = "dimensions given",
) -> Model:
    """A model of `layers` blocks; the last `moe_layers` (or evenly spread ones) are routed.

    `bias` puts a bias on every projection and norm, as GPT-2 does. `intermediate_size` is that of
    dense layers, `expert_intermediate_size` that of one expert (default `intermediate_size`),
    `shared_intermediate_size` the total over shared experts. `head_dim` defaults to
    hidden_size / heads, `v_head_dim` to `head_dim`. With `kv_lora_rank` attention is latent and
    `head_dim` its whole query/key width. `mtp_layers` blocks equal to the last follow the model.
    """
    width = head_dim if head_dim is not None else hidden_size // heads
    attention = Attention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        head_dim=width,
        v_head_dim=v_head_dim if v_head_dim is not None else width,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=qk_norm,
        window=window,
        q_lora_rank=q_lora_rank,
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=qk_rope_head_dim,
    )
    dense = Mlp(intermediate_size=intermediate_size, gated=gated, activation=activation, bias=bias)
    routed = Experts(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=expert_intermediate_size or intermediate_size,
        gated=gated,
        activation=activation,
        bias=bias,
        shared_intermediate_size=shared_intermediate_size,
    )
    routed_layers = (layers if moe_layers is None else moe_layers) if experts else 0
    blocks = [
        Block(
            attention=attention,
            feed_forward=routed if is_moe else dense,
            norms=norms,
            norm_bias=bias,
            parallel=parallel,
        )
        for is_moe in moe_pattern(layers, routed_layers, interleaved=moe_interleaved)
    ]
    return Model(
        name=name,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        runs=merge_runs(blocks),
        tie_word_embeddings=tied,
        position_embeddings=position_embeddings,
        final_norm_bias=bias,
        mtp=merge_runs(blocks[-1:] * mtp_layers),
        family=family,
        source=source,
    )
