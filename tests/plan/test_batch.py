"""Batches stated in tokens become the sequences that their authors meant."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.plan.batch import TOLERANCE, sequences_for


@pytest.mark.parametrize(
    ("tokens", "seq_len", "expected"),
    [
        (4e6, 8192, 512),
        (16e6, 8192, 2048),
        (16e6, 131072, 128),
        (63e6, 4096, 15360),
        (0.5e6, 1024, 512),
        (8 * 2**20, 8192, 1024),
        (3.2e6, 2048, 1536),
        (2048 * 2048, 2048, 2048),
        (100, 8192, 1),
        (64e6, 4096, 16384),
        (4e6, 4000, 1024),
        (128e3, 128, 1000),
    ],
)
def test_known_batches(tokens, seq_len, expected):
    assert sequences_for(tokens, seq_len) == expected


@given(st.integers(1, 10**6), st.integers(1, 2**20))
def test_an_exact_multiple_is_kept(sequences, seq_len):
    tokens = float(sequences * seq_len)
    assume(tokens < 1e6 or tokens != float(f"{tokens:.2e}"))
    assert sequences_for(tokens, seq_len) == sequences


@given(st.floats(1e4, 1e9), st.integers(1, 2**17))
def test_never_far_from_what_was_said(tokens, seq_len):
    found = sequences_for(tokens, seq_len)
    assert found >= 1
    assert abs(found * seq_len - tokens) <= max(TOLERANCE * tokens, seq_len)
