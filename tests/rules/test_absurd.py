"""Whatever a plan says, check answers with findings: no traceback, no endless loop."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.finding import Severity
from meshwright.plan.plan import Plan
from meshwright.rules.example import build_job
from meshwright.rules.rule import check, find_rule

EXTREME = st.sampled_from((-(2**40), -1, 0, 1, 2, 3, 7, 64, 1000, 10**6, 2**31 - 1, 2**62))
NAMES = sorted(f.name for f in fields(Plan) if f.name != "layout" and f.type != "BoolColumn")
FACTS = (
    *("num_samples", "consumed_samples", "data_readers", "num_workers", "num_shards", "saved_dp"),
    *("bucket_elements", "process_groups", "eval_global_batch_size", "step_time_s"),
    *("checkpoint_interval_s", "checkpoint_stall_s", "job_mtbf_s", "gpu_mtbf_s"),
    *("read_bytes_per_s_per_node", "checkpoint_write_bytes_per_s_per_node"),
    *("critical_batch_tokens", "dataset_tokens", "train_tokens"),
)
MODELS = st.sampled_from(("llama-3-8b", "qwen3-30b-a3b"))


@settings(max_examples=60, deadline=None)
@given(
    model=MODELS, values=st.dictionaries(st.sampled_from(NAMES), EXTREME, min_size=1, max_size=4)
)
def test_any_plan_gets_findings(model: str, values: dict[str, int]) -> None:
    job = build_job(model=model)
    for found in check(replace(job, plan=job.plan.replace(**values))):
        assert found.message
        assert found.code


@settings(max_examples=30, deadline=None)
@given(
    seq_len=EXTREME,
    batch=EXTREME,
    facts=st.dictionaries(
        st.sampled_from(FACTS), st.sampled_from((0, 1, -1, 10**12, 2**62)), min_size=4
    ),
)
def test_any_facts_get_findings(seq_len: int, batch: int, facts: dict[str, Any]) -> None:
    job = build_job(seq_len=seq_len, global_batch_size=batch, streamed=True, **facts)
    assert all(found.message for found in check(job))


@pytest.mark.parametrize(
    ("name", "value"),
    [("schedule", 99), ("precision", -1), ("optimizer", 6), ("vpp", 10**6), ("lora_rank", -1)],
)
def test_values_without_meaning_are_all_that_is_said(name: str, value: int) -> None:
    findings = check(build_job(**{name: value}))
    assert [f.code for f in findings] == ["DAT191"]
    assert f"{name} = {value}" in findings[0].message


def test_not_a_number_is_out_of_range() -> None:
    range_ = find_rule("DAT191")
    assert range_ is not None
    assert check(build_job(offload_optimizer=math.nan), [range_])


def test_no_prediction_of_a_plan_with_errors() -> None:
    findings = check(build_job(tp=3, micro_batch_size=512))
    assert any(f.severity is Severity.ERROR for f in findings)
    assert "CMP121" not in {f.code for f in findings}
