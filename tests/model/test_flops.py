"""FLOP counts against published TFLOP/s, and against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import UnknownName
from meshwright.model.architecture import Model
from meshwright.model.catalogue import load
from meshwright.model.flops import (
    CONVENTIONS,
    attention_flops,
    flops_per_token,
    mean_keys,
    training_flops,
)
from meshwright.model.generic import decoder


def gpt(layers: int, hidden: int, heads: int, vocab: int, *, positions: int = 0) -> Model:
    """A GPT as Megatron and llm-foundry count it: four-fold width, tied, biases left out."""
    return decoder(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        intermediate_size=4 * hidden,
        vocab_size=vocab,
        gated=False,
        tied=True,
        position_embeddings=positions,
    )


def llama(layers: int, hidden: int, heads: int, ffn: int, vocab: int, *, tied: bool) -> Model:
    """A Llama-like model with as many key/value heads as heads."""
    return decoder(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        intermediate_size=ffn,
        vocab_size=vocab,
        tied=tied,
    )


# source, convention, model, seq_len, tokens/s per GPU, TFLOP/s per GPU (from MFU x peak where the
# source prints MFU), relative tolerance
PUBLISHED = [
    ("bridge 26.08", "model_causal", "deepseek-v3", 4096, 6288, 1635, 0.01),
    ("bridge 26.08", "model_causal", "gpt-oss-120b", 4096, 33024, 1077, 0.01),
    ("bridge 26.08", "model_causal", "qwen3-30b-a3b", 4096, 44544, 1029, 0.01),
    ("bridge 26.08", "model_causal", "qwen3-235b-a22b", 4096, 8816, 1306, 0.01),
    ("bridge 26.08", "model_causal", "llama-3.1-405b", 8192, 1048, 2646, 0.01),
    ("bridge 26.08", "model_causal", "kimi-k2", 4096, 5372, 1099, 0.01),
    ("bridge 26.08", "model_causal", "llama-3-70b", 8192, 5248, 2348, 0.01),
    ("nemo 25.07", "model_causal", "llama-4-scout", 8192, 13783, 1501, 0.01),
    ("dgxc", "model_causal", "llama-4-maverick", 8192, 8341.36, 908.95, 0.01),
    ("nemo 25.02", "model_causal", "mixtral-8x22b", 65536, 2232, 824, 0.01),
    ("moe model zoo", "model_causal", "qwen3-235b-a22b", 4096, 1663.35, 245, 0.01),
    ("nemo 24.07", "model_full", gpt(96, 12288, 96, 51200), 2048, 716, 771, 0.01),
    ("nemo 24.07", "model_full", "llama-2-7b", 4096, 16934, 780, 0.01),
    ("nemo 24.07", "model_full", "llama-2-70b", 4096, 1728, 768, 0.01),
    ("nemo 24.07", "model_full", "nemotron-4-340b", 4096, 326, 686, 0.01),
    ("nemo 24.07", "model_full", "nemotron-3-8b", 4096, 12507, 643, 0.01),
    ("nemo 25.02", "model_full", "mixtral-8x7b", 4096, 15457, 1282, 0.01),
    ("megatron-lm", "model_full", "llama-3-8b", 8192, 13812, 800, 0.01),
    ("tpu recipes", "model_full", "llama-3.1-405b", 8192, 149.482, 392.454, 0.001),
    ("tpu recipes", "model_full", "llama-2-70b", 4096, 905.021, 402.274, 0.001),
    ("llm-foundry", "6n_full", gpt(80, 8192, 64, 50368, positions=2048), 2048, 1007, 408, 0.01),
    ("llm-foundry", "6n_full", gpt(32, 4096, 32, 50368, positions=2048), 2048, 9670, 417, 0.01),
    ("llm-foundry", "6n_full", gpt(24, 1024, 16, 50368, positions=65536), 65536, 7524, 164, 0.01),
    ("fms", "6n_full", "llama-2-7b", 4096, 4550, 212.16, 0.02),
    (
        "nanotron pp=1",
        "6n_full",
        llama(16, 2048, 32, 8192, 131072, tied=True),
        4096,
        40150,
        387.688,
        0.015,
    ),
    (
        "nanotron pp>1",
        "6n_full_untied",
        llama(16, 2048, 32, 8192, 131072, tied=True),
        4096,
        38895,
        438.127,
        0.015,
    ),
    ("korthikanti", "korthikanti", "gpt-22b", 2048, 930.909, 0.415 * 312, 0.01),
    ("korthikanti", "korthikanti", "gpt-530b", 2048, 54.1369, 0.560 * 312, 0.01),
    ("korthikanti", "korthikanti_hardware", "gpt-22b", 2048, 930.909, 0.437 * 312, 0.01),
    ("korthikanti", "korthikanti_hardware", "gpt-530b", 2048, 54.1369, 0.570 * 312, 0.01),
    ("vocab parallel", "korthikanti", gpt(48, 4096, 32, 32000), 2048, 2297.35, 146.112, 0.001),
    ("vocab parallel", "model_full", gpt(48, 4096, 32, 32000), 2048, 2297.35, 146.112, 0.001),
    ("bloom", "sc21_hardware", "bloom-176b", 2048, 103.808, 149.1, 0.01),
    ("bloom prequel", "sc21_hardware", gpt(72, 14336, 64, 250880), 2048, 76.2171, 112.49, 0.001),
    ("internevo", "sc21_hardware", gpt(32, 4096, 32, 103168), 2048, 3314, 193, 0.01),
    ("104b", "8n", gpt(64, 11600, 80, 50304, positions=2048), 2048, 55.9181, 46.52, 0.01),
]


@pytest.mark.parametrize(
    ("convention", "model", "seq_len", "tokens_per_s", "tflops", "tolerance"),
    [row[1:] for row in PUBLISHED],
    ids=[f"{row[0]}-{row[1]}-{i}" for i, row in enumerate(PUBLISHED)],
)
def test_published_rate(
    convention: str,
    model: str | Model,
    seq_len: int,
    tokens_per_s: float,
    tflops: float,
    tolerance: float,
) -> None:
    chosen = load(model) if isinstance(model, str) else model
    per_token = flops_per_token(chosen, seq_len, convention=convention)
    assert per_token * tokens_per_s / 1e12 == pytest.approx(tflops, rel=tolerance)


def test_automodel_counts_deepseek_v3_without_mtp() -> None:
    model = load("deepseek-v3")
    assert training_flops(model, 4096, mtp=False) * 1002 / 1e12 == pytest.approx(250, rel=0.01)


def brute_mean_keys(seq_len: int, window: int | None, *, chunked: bool) -> float:
    """Mean number of visible keys, the query's own key counted half."""
    i, j = np.indices((seq_len, seq_len))
    seen = j <= i
    if window is not None:
        seen &= (i // window == j // window) if chunked else (i - j < window)
    return float((seen.sum() - seq_len / 2) / seq_len)


@given(seq_len=st.integers(1, 60), window=st.none() | st.integers(1, 70), chunked=st.booleans())
def test_mean_keys_is_the_exact_count(seq_len: int, window: int | None, chunked: bool) -> None:
    got = mean_keys(seq_len, window=window, chunked=chunked)
    # a sliding window of w keys has its diagonal whole, the closed form half: they differ by the
    # other end of the band, at most half a key
    assert got == pytest.approx(brute_mean_keys(seq_len, window, chunked=chunked), abs=0.51)
    if chunked or window is None:
        assert got == pytest.approx(brute_mean_keys(seq_len, window, chunked=chunked))


@pytest.mark.parametrize("name", sorted(CONVENTIONS))
def test_column_of_lengths_equals_one_by_one(name: str) -> None:
    model = load("gpt-oss-20b")
    lengths = np.array([128, 1000, 8192, 131072])
    column = flops_per_token(model, lengths, convention=name)
    each = [flops_per_token(model, int(s), convention=name) for s in lengths]
    np.testing.assert_allclose(np.broadcast_to(column, lengths.shape), each, rtol=1e-12)


def test_conventions_are_ordered_as_their_formulas_say() -> None:
    model = load("llama-3.1-8b")
    count = {name: flops_per_token(model, 8192, convention=name) for name in CONVENTIONS}
    attention = 32 * 32 * 128 * 8192
    assert count["model_full"] - count["model_causal"] == pytest.approx(6 * attention)
    assert count["6n_full"] - count["6n"] == pytest.approx(12 * attention)
    assert count["8n"] == pytest.approx(8 * 8_030_261_248)
    assert count["model_causal"] - count["model_causal_no_vocabulary"] == 6 * 128256 * 4096
    blocks = count["model_causal_no_vocabulary"]
    assert count["hardware_causal"] - count["model_causal"] == pytest.approx(blocks / 3)
    assert count["lora_causal"] - 6 * attention == pytest.approx(4 * (8_030_261_248 - 525_602_816))


def test_window_lowers_the_count_only_where_it_is_counted() -> None:
    windowed = load("mistral-7b")
    assert windowed.runs[0].block.attention.window == 4096
    exact = training_flops(windowed, 32768)
    ignored = training_flops(windowed, 32768, windows=False)
    assert exact < ignored
    assert training_flops(windowed, 4096) == training_flops(windowed, 4096, windows=False)


def test_latent_attention_counts_key_and_value_widths() -> None:
    attention = load("deepseek-v3").runs[0].block.attention
    assert attention_flops(attention, 4096, kind="full") == 2 * 128 * (192 + 128) * 4096
    same_width = replace(attention, v_head_dim=192)
    assert attention_flops(same_width, 4096) > attention_flops(attention, 4096)


def test_unknown_convention_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="model_causl") as caught:
        flops_per_token(load("gpt2"), 1024, convention="model_causl")
    assert "model_causal" in caught.value.suggestions
