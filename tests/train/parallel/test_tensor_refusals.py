"""Which sizes tp cannot cut is told before torch is imported."""

from __future__ import annotations

import pytest

from meshwright import api
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan
from meshwright.train.refusals import refusals


def found(model: str, tp: int) -> list[tuple[str, str]]:
    """What blames tp, and what to type instead."""
    cluster = api.cluster("H100:8", nodes=max(tp // 8, 1))
    workload = api.workload(seq_len=4096, global_batch=512, train_tokens="1B")
    plan = Plan(tp=tp, dp=max(8 // tp, 1))
    job = Job(model=api.load_model(model), cluster=cluster, workload=workload, plan=plan)
    return [(f.message, f.hint) for f in refusals(job) if f.key == "plan.tp"]


@pytest.mark.parametrize(
    ("model", "tp"),
    [
        ("llama-3-8b", 8),
        ("deepseek-v3", 16),  # latent attention has no key/value heads to divide
        ("kimi-k2", 8),
        ("gemma-3-27b", 16),
        ("falcon-7b", 1),
    ],
)
def test_what_divides_is_not_refused(model, tp):
    assert found(model, tp) == []


def test_key_value_heads_that_do_not_divide_are_refused_with_the_largest_tp_that_does():
    ((message, hint),) = found("llama-3-8b", 16)
    assert message == "tp 16 does not divide the model's 8 key/value heads"
    assert hint == "plan.tp = 8"


def test_a_family_without_a_layout_is_refused():
    messages = [message for message, _ in found("falcon-7b", 2)]
    assert messages[0] == "tensor parallelism of the family 'falcon' is not known"
