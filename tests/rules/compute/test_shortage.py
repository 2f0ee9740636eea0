"""A plan that does not fit is told where, when and what would: each remedy is computed."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.rules.example import example_job
from meshwright.rules.predicted import overflows, surely_overflows
from meshwright.rules.rule import as_numpy, check, find_rule
from meshwright.rules.shortage import remedies, shortage

FULL = "plan(model='llama-3-8b', nodes=1, tp=1, zero_stage=3, stack='fsdp', micro_batch_size=8)"


def test_a_shortage_names_stage_moment_and_terms() -> None:
    job = as_numpy(example_job("plan(model='llama-3-70b', nodes=8, tp=8, pp=8, seq_len=32768)"))
    words = shortage(job)
    assert "stage 0 needs" in words
    assert "in the first forward pass" in words
    assert "on a GPU of 80.0 GiB" in words
    assert "activations" in words


def test_states_that_appear_in_the_optimizer_step_are_blamed_on_it() -> None:
    text = "plan(nodes=1, zero_stage=3, seq_len=512, gpu_memory_bytes={}, stack='deepspeed')"
    sizes = range(10, 60)
    words = [shortage(as_numpy(example_job(text.format(n * 2**30)))) for n in sizes]
    assert any("in the first optimizer step" in w for w in words)


def test_remedies_fit_alone() -> None:
    job = as_numpy(example_job(FULL))
    assert overflows(job)
    found = remedies(job, lambda other: ~np.asarray(overflows(other)))
    assert {"recompute", "micro_batch_size"} <= set(found)
    for name, (value,) in found.items():
        other = job.with_plan(job.plan.replace(**{name: np.asarray(value)[()]}))
        assert not overflows(other)


def test_remedies_are_combined_where_none_is_enough_alone() -> None:
    job = as_numpy(example_job("plan(model='llama-3-70b', nodes=2, tp=1, zero_stage=1)"))
    found = remedies(job, lambda other: ~np.asarray(overflows(other)))
    together = {name: np.asarray(value)[()] for name, (value,) in found.items()}
    assert len(together) > 1
    assert not overflows(job.with_plan(job.plan.replace(**together)))


def test_nothing_is_proposed_that_does_not_help() -> None:
    job = as_numpy(example_job("plan(model='llama-3-70b', nodes=1, tp=8, gpu_memory_bytes=1e9)"))
    assert remedies(job, lambda other: ~np.asarray(overflows(other))) == {}


@pytest.mark.parametrize("gib", range(20, 60, 2))
def test_an_error_is_sure_and_a_warning_is_not(gib: int) -> None:
    text = "plan(model='llama-3-8b', nodes=1, tp=1, zero_stage=3, stack='torchtitan', "
    job = as_numpy(example_job(f"{text} gpu_memory_bytes={gib * 2**30})"))
    rules = [r for code in ("CMP121", "CMP212", "MOD217") if (r := find_rule(code))]
    codes = {f.code for f in check(job, rules)}
    assert not {"CMP121", "CMP212"} <= codes
    if bool(surely_overflows(job)):
        assert codes & {"CMP121", "MOD217"}
    elif bool(overflows(job)):
        assert codes & {"CMP212", "MOD217"}
