"""What is rendered is read back as the same settings, in every syntax."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source, syntax_of
from meshwright.frameworks.text.render import render
from meshwright.frameworks.text.written import plain_text

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.lists(st.integers(0, 99), min_size=2, max_size=3),
)
PART = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(
    lambda x: (
        x not in {"if", "in", "is", "or", "as", "do", "fi", "def", "not", "and", "for", "none"}
        and not __import__("keyword").iskeyword(x)
    )
)
TREES = st.dictionaries(st.lists(PART, min_size=2, max_size=3).map(".".join), VALUES, max_size=5)
FLAGS = st.dictionaries(PART.map(lambda x: f"--{x}"), VALUES, max_size=5)


def read(text, syntax, file="f"):
    return parse_source(Source(file=file, text=text, syntax=syntax))


def stated(text, syntax):
    return {s.name: s.value for s in read(text, syntax).settings}


def is_same(found, wanted):
    """As a field would read them: arguments are texts."""
    if isinstance(found, list) and isinstance(wanted, list):
        return [str(x) for x in found] == [str(x) for x in wanted]
    return (type(found) is type(wanted) and found == wanted) or found == plain_text(wanted)


@settings(deadline=None, max_examples=60)
@given(
    values=TREES, syntax=st.sampled_from(["json", "toml", "yaml", "python", "overrides", "shell"])
)
def test_dotted_names_come_back(values, syntax):
    try:
        text = render(syntax, values, launch={}, program="", comments=["a comment"])
    except MeshwrightError:  # a name that is a value and a table
        names = sorted(values)
        assert any(b.startswith(a + ".") for a in names for b in names)
        return
    found = stated(text, syntax)
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert is_same(found[name], value), (name, text)


@settings(deadline=None, max_examples=60)
@given(values=FLAGS, program=st.sampled_from(["", "train.py", "megatron sft"]))
def test_flags_come_back(values, program):
    text = render("shell", values, launch={"num_nodes": 2, "gpus_per_node": 8}, program=program)
    found = stated(text, "shell")
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert is_same(found[name], value), (name, text)


@pytest.mark.parametrize("syntax", ["shell", "toml", "yaml", "python", "overrides"])
@pytest.mark.parametrize("program", ["", "train.py", "megatron sft"])
def test_the_launch_comes_back(syntax, program):
    launch = {"num_nodes": 4, "gpus_per_node": 8, "num_gpus": 32}
    if syntax == "shell":
        launch["environment"] = {"NCCL_ALGO": "Ring", "A": "b c"}
    made = "titan.trainer:Trainer.Config" if syntax == "python" else program
    text = render(syntax, {"a.b": 1}, launch=launch, program=made)
    found = {name: value.value for name, value in read(text, syntax).launch.items()}
    assert found == launch
    assert syntax_of("-", text) == syntax


def test_a_script_reads_well():
    text = render(
        "shell",
        {"--tensor-model-parallel-size": 8, "--swiglu": True, "--name": "a b"},
        launch={"num_nodes": 2, "gpus_per_node": 8, "environment": {"X": 1}},
        program="pretrain_gpt.py",
        comments=["written by a test"],
    )
    assert (
        text
        == """#!/bin/bash
# written by a test
set -euo pipefail

export X=1
NNODES=2
GPUS_PER_NODE=8

ARGS=(
    --tensor-model-parallel-size 8
    --swiglu
    --name 'a b'
)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank ${NODE_RANK:-0} \
--master_addr ${MASTER_ADDR:-localhost} --master_port ${MASTER_PORT:-29500} \\
    pretrain_gpt.py "${ARGS[@]}"
"""
    )
    assert read(text, "shell").programs[:2] == ("torchrun", "pretrain_gpt.py")
