"""A comment's words about a saved checkpoint become variables, and nothing else does."""

from __future__ import annotations

import pytest

from meshwright.frameworks.read import read_text

_DEEPSPEED = '{"zero_optimization": {"stage": 3}}'


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# saved: world 32, dp 32", {"saved_num_gpus": 32, "saved_dp": 32}),
        ("# checkpoint written with tp 2", {"saved_tp": 2}),
        ("# resume: dp 128", {}),
        ("# saved: dp 0", {}),
        ("# saved: dp true", {}),
        ("# 8 GPUs", {}),
    ],
)
def test_degrees_of_the_checkpoint(comment: str, expected: dict[str, int]) -> None:
    reading = read_text(f"{comment}\n{_DEEPSPEED}", framework="deepspeed")
    found = {n: v.value for n, v in reading.values.items() if n.startswith("saved_")}
    assert found == expected


def test_a_frameworks_own_spelling() -> None:
    text = "# saved with: --tensor-model-parallel-size 4\n--tensor-model-parallel-size 2"
    reading = read_text(text, framework="megatron-lm")
    assert reading.value("saved_tp") == 4
    assert reading.settings_of("saved_tp")[0].value in (4, "4")
