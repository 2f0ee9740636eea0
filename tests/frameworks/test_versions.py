"""Versions of a framework and of what it runs on."""

from __future__ import annotations

import pytest

from meshwright.api.checking import Given, check_text
from meshwright.frameworks.framework import framework
from meshwright.frameworks.versions import split_version

TEXT = """megatron sft
    --tensor_model_parallel_size 8
    --num_query_groups 2
    --num_attention_heads 32
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("megatron-lm", "0.15", ("0.15", ())),
        ("megatron-lm", "megatron-core 0.15.0", ("0.15.0", ())),
        ("ms-swift-megatron", "megatron-core 0.15.0", ("", (("megatron-core", "0.15.0"),))),
        ("ms-swift-megatron", "4.1, mcore 0.15", ("4.1", ())),
        ("ms-swift-megatron", "4.1, megatron-core==0.15", ("4.1", (("megatron-core", "0.15"),))),
        ("torchtitan", "main", ("main", ())),
        ("torchtitan", "", ("", ())),
    ],
)
def test_a_version_is_split(name, text, expected):
    assert split_version(text, framework(name)) == expected


@pytest.mark.parametrize(("version", "refused"), [("0.15.0", True), ("0.16.0", False)])
def test_demands_follow_the_version_below(version, refused):
    given = Given(framework="ms-swift-megatron", version=f"megatron-core {version}")
    codes = {
        f.code for f in check_text(TEXT, given=given, compare=False).findings if f.severity > 1
    }
    assert ("MOD103" in codes) == refused


@pytest.mark.parametrize("version", ["main", "latest"])
def test_a_version_without_numbers_is_the_newest(version):
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_buket_size": 1}}'
    newest, named = (
        check_text(text, given=Given(framework="deepspeed", version=v), compare=False)
        for v in ("", version)
    )
    assert [f.code for f in named.findings] == [f.code for f in newest.findings]
    assert "DAT232" in {f.code for f in named.findings}
