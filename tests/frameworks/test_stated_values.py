"""Values of variables as `--set NAME=VALUE` states them."""

from __future__ import annotations

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.variables import read_variable


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("tp", "8", 8),
        ("zero_stage", "0", 0),
        ("recompute", "full", "full"),
        ("schedule", "1f1b", "1f1b"),
        ("environment", "NCCL_ALGO=Ring, A=b=c", {"NCCL_ALGO": "Ring", "A": "b=c"}),
    ],
)
def test_a_value_is_read(name, text, value):
    assert read_variable(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tp", "0"),
        ("tp", "-1"),
        ("zero_stage", "9"),
        ("recompute", "maybe"),
        ("schedule", "foo"),
        ("num_gpus", "0"),
        ("num_hidden_layers", "0"),
        ("hidden_size", "-8"),
        ("environment", "x"),
        ("vocab_size", "9" * 5000),
    ],
)
def test_a_value_without_meaning_is_refused(name, text):
    with pytest.raises(MeshwrightError) as refused:
        read_variable(name, text)
    assert name in str(refused.value)
    assert len(str(refused.value)) < 200
    assert refused.value.hint
