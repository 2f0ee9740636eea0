"""Advice of framework rules: what keeps the batch, and numbers that one would type."""

from __future__ import annotations

import json

import pytest

from meshwright.base.finding import Severity
from meshwright.frameworks.read import read_text
from meshwright.hardware.catalogue import cluster
from meshwright.model.catalogue import load
from meshwright.rules.lint import lint


def _found(config, *, gpu="H100-80GB:8"):
    reading = read_text(json.dumps(config), file="ds.json", framework="deepspeed")
    result = lint(reading, model=load("llama-3-8b"), cluster=cluster(gpu, nodes=1))
    return {f.code: f for f in result.findings}


@pytest.mark.parametrize(
    ("batch", "hint"),
    [(64, "gradient_accumulation_steps = 2"), (72, "train_batch_size = 128")],
)
def test_the_stated_batch_stays_where_accumulation_can_follow(batch, hint):
    sizes = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}
    assert _found({"train_batch_size": batch, **sizes})["DAT110"].hint == hint


def test_a_bucket_is_advised_in_a_round_number():
    zero = {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 1e9}
    found = _found({"zero_optimization": zero}, gpu="A100-40GB:8")["COM308"]
    digits = found.hint.split("reduce_bucket_size = ")[1].split()[0]
    assert len(digits.rstrip("0")) == 1


def test_padding_that_depends_on_tp_is_a_note_without_numbers_of_others():
    text = (
        "pretrain_gpt.py --tensor-model-parallel-size 4 --num-attention-heads 32 --vocab-size "
        "128256 --make-vocab-size-divisible-by 128 --group-query-attention --num-query-groups 2"
    )
    reading = read_text(text, file="train.sh", framework="megatron-lm", version="0.12")
    found = {f.code: f for f in lint(reading).findings}
    assert found["MOD262"].severity is Severity.INFO
    assert "(2)" not in found["MOD103"].consequence
