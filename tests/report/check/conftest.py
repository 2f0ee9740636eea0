"""A report with everything in it: labels in two files, edits, notes, an unreadable file."""

from __future__ import annotations

import pytest

from meshwright.base.finding import Edit, Finding, Label, Severity
from meshwright.report.check.report import Checked, Report
from meshwright.report.check.texts import Texts

SCRIPT = """#!/bin/bash
torchrun pretrain_gpt.py \\
  --tensor-model-parallel-size 8 \\
  --num-layers 32 \\
  --sequence-parallel --tp-comm-overlap \\
"""
CONFIG = '{\n  "num_key_value_heads": 2\n}\n'


def kv_heads():
    return Finding(
        code="MOD102",
        message="2 KV heads do not divide by tp 8",
        file="train.sh",
        line=3,
        column=32,
        key="tp",
        value=8,
        labels=(
            Label(text="tp=8 here", file="train.sh", line=3, column=32, length=1),
            Label(text="2 KV heads there", file="config.json", line=2, column=26, length=1),
        ),
        consequence="AssertionError: num_query_groups must be divisible",
        confidence="run",
        source="megatron-core 0.14, transformer_config.py",
        notes=("transformers replicates the heads instead",),
        hint="--tensor-model-parallel-size 2",
        edits=(
            Edit(
                file="train.sh", start=SCRIPT.index("8 \\"), end=SCRIPT.index("8 \\") + 1, text="2"
            ),
        ),
    )


def redundant():
    start = SCRIPT.index(" --tp-comm-overlap")
    return Finding(
        code="COM203",
        severity=Severity.WARNING,
        message="overlap of tp without user buffers",
        file="train.sh",
        line=5,
        column=23,
        labels=(Label(text="no effect", file="train.sh", line=5, column=23, length=17),),
        confidence="arithmetic",
        hint="remove it",
        edits=(Edit(file="train.sh", start=start, end=start + 18, text="", safe=True),),
    )


@pytest.fixture
def texts():
    return Texts({"train.sh": SCRIPT, "config.json": CONFIG, "gone.sh": ""})


@pytest.fixture
def report():
    note = Finding(
        code="CFG202", severity=Severity.INFO, message="18% slower than tp 4 pp 2", file="train.sh"
    )
    return Report(
        files=(
            Checked(
                file="train.sh",
                framework="megatron-lm",
                version="0.14",
                findings=(kv_heads(), redundant(), note),
                summary="megatron-lm, 64 GPUs: tp 8 x pp 1 x dp 8",
            ),
            Checked(file="clean.toml", framework="torchtitan", version="0.2"),
            Checked(file="gone.sh", error="cannot read 'gone.sh': No such file or directory"),
        ),
        skipped=("notes.yaml", "package.json"),
    )
