"""Did-you-mean: near names first, whatever their case and separators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.names import is_typo, nearest, slug

MODELS = ("llama-3.1-70b", "llama-3.1-8b", "llama-2-70b", "deepseek-v3", "qwen3-32b", "gpt3-175b")


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("lama-3.1-70b", "llama-3.1-70b"),
        ("Llama 3.1 70B", "llama-3.1-70b"),
        ("deepseekv3", "deepseek-v3"),
        ("qwen-3-32b", "qwen3-32b"),
        ("GPT-175B", "gpt3-175b"),
    ],
)
def test_the_meant_name_comes_first(typed, first):
    assert nearest(typed, MODELS)[0] == first


def test_a_stranger_has_no_neighbors():
    assert nearest("zzzzzz", MODELS) == ()
    assert nearest("", MODELS) == ()


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=8))
def test_suggestions_are_known_names_and_few(typed, known):
    found = nearest(typed, known)
    assert set(found) <= set(known)
    assert len(found) <= 3


@given(st.text(alphabet="abc123", min_size=1, max_size=8))
def test_a_name_is_nearest_to_itself(name):
    assert nearest(name.upper(), [name, "zzzzzzzzzz"])[0] == name
    assert slug(name) == slug(f" {name}-_")


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        ("--sequence-paralel", "--sequence-parallel", True),
        ("zero_optimization.reduce_buket_size", "zero_optimization.reduce_bucket_size", True),
        ("micro_batchsize", "micro_batch_size", True),
        ("--sequence_parallle", "--sequence-parallel", True),
        ("--max-loss-scale", "--min-loss-scale", False),
        ("use_tp_overlap", "use_pp_overlap", False),
        ("--decoder-seq-length", "--encoder-seq-length", False),
        ("--no-bias-gelu-fusion", "--bias-gelu-fusion", False),
        ("a.global_batch_sise", "b.global_batch_size", False),
        ("--adam-beta3", "--adam-beta2", False),
    ],
)
def test_a_typo_is_a_slip_in_one_word_and_no_other_word(name, other, expected):
    assert is_typo(name, other) is expected
