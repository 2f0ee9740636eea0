"""Parameter counts against published and transformers' own exact figures."""

from __future__ import annotations

import pytest

from meshwright.model.count import block_parameters, parameters
from meshwright.model.generic import decoder, moe_pattern


def test_llama_3_8b_is_exact() -> None:
    model = decoder(
        layers=32,
        hidden_size=4096,
        heads=32,
        kv_heads=8,
        intermediate_size=14336,
        vocab_size=128256,
    )
    assert parameters(model).total == 8_030_261_248


def test_gpt2_is_exact() -> None:
    model = decoder(
        layers=12,
        hidden_size=768,
        heads=12,
        intermediate_size=3072,
        vocab_size=50257,
        gated=False,
        bias=True,
        tied=True,
        position_embeddings=1024,
    )
    assert parameters(model).total == 124_439_808


def test_mixtral_total_and_active() -> None:
    model = decoder(
        layers=32,
        hidden_size=4096,
        heads=32,
        kv_heads=8,
        vocab_size=32000,
        experts=8,
        top_k=2,
        expert_intermediate_size=14336,
    )
    count = parameters(model)
    assert count.total == 46_702_792_704
    assert count.active == pytest.approx(12.9e9, rel=0.01)


def test_groups_and_layers_add_up_to_the_total() -> None:
    model = decoder(
        layers=6,
        hidden_size=64,
        heads=8,
        kv_heads=2,
        intermediate_size=96,
        vocab_size=101,
        experts=4,
        top_k=2,
        expert_intermediate_size=32,
        shared_intermediate_size=48,
        moe_layers=4,
        bias=True,
        q_lora_rank=16,
        kv_lora_rank=24,
        head_dim=12,
        v_head_dim=8,
        qk_rope_head_dim=4,
        mtp_layers=1,
    )
    count = parameters(model)
    assert sum(count.by_group.values()) == count.total
    assert len(count.by_layer) == 7
    assert count.total - parameters(model, mtp=False).total == (
        count.by_layer[-1] + 2 * 64 * 64 + 3 * 64
    )


def test_split_of_a_block_by_tp() -> None:
    block = (
        decoder(
            layers=1,
            hidden_size=8,
            heads=2,
            intermediate_size=16,
            vocab_size=10,
            gated=False,
            bias=True,
        )
        .runs[0]
        .block
    )
    count = block_parameters(block, 8)
    assert count.attention_sharded == 8 * 24 + 24 + 8 * 8
    assert count.attention_replicated == 8
    assert count.mlp_sharded == 2 * 8 * 16 + 16
    assert count.mlp_replicated == 8
    assert count.norms == 2 * 2 * 8
    assert count.sharded + count.replicated == count.total


def test_moe_placement() -> None:
    assert moe_pattern(4, 3) == (False, True, True, True)
    assert moe_pattern(4, 2, interleaved=True) == (False, True, False, True)
