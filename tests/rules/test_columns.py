"""One plan and a column of plans get the same answer from the same rule."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import BASES, legal_job, random_job

from meshwright.plan.plan import Plan
from meshwright.rules.rule import all_rules, check, mask, prune, pruning_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.plan.job import Job
    from meshwright.rules.rule import Rule

ROWS = 24
ARITHMETIC = tuple(r for r in all_rules() if not r.predictive)
PREDICTIVE = tuple(r for r in all_rules() if r.predictive)


@settings(max_examples=12, deadline=None)
@given(base=st.sampled_from(sorted(BASES)), seed=st.integers(0, 2**31))
def test_a_row_of_the_mask_is_the_answer_for_the_plan(base: str, seed: int) -> None:
    job = random_job(base, seed, ROWS)
    _assert_rows_equal_column(job, ARITHMETIC)


@settings(max_examples=6, deadline=None)
@given(base=st.sampled_from(sorted(BASES)), seed=st.integers(0, 2**31))
def test_predictive_rules_answer_alike_on_legal_plans(base: str, seed: int) -> None:
    _assert_rows_equal_column(legal_job(base, seed, 8), PREDICTIVE)


def _assert_rows_equal_column(job: Job, rules: Sequence[Rule]) -> None:
    """Every row of every mask equals the answer for the plan in that row."""
    rows = len(job.plan)
    columns = {code: np.broadcast_to(bad, rows) for code, bad in mask(job, rules).items()}
    for index in range(rows):
        one = mask(job.with_plan(job.plan.row(index)), rules)
        for code, bad in one.items():
            assert np.shape(bad) == (), code
            assert bool(bad) == bool(columns[code][index]), (code, job.plan.row(index))


@settings(max_examples=10, deadline=None)
@given(base=st.sampled_from(sorted(BASES)), seed=st.integers(0, 2**31))
def test_pruning_keeps_what_no_rule_objects_to(base: str, seed: int) -> None:
    job, rules = random_job(base, seed, 300), pruning_rules()
    fast, full = prune(job), prune(job, independent=True)
    bad = [np.broadcast_to(m, 300) for m in mask(job, rules).values()]
    assert np.array_equal(fast.alive, ~np.any(bad, axis=0))
    assert np.array_equal(fast.alive, full.alive)
    assert fast.first == full.first
    assert sum(fast.first.values()) == 300 - np.count_nonzero(fast.alive)
    assert list(full.fired.values()) == [np.count_nonzero(m) for m in bad]


@settings(max_examples=10, deadline=None)
@given(base=st.sampled_from(sorted(BASES)), seed=st.integers(0, 2**31))
def test_check_reports_each_rule_that_fires_on_the_plan(base: str, seed: int) -> None:
    job = random_job(base, seed, 4)
    for index in range(4):
        one = job.with_plan(job.plan.row(index))
        fires = {code for code, bad in mask(one, ARITHMETIC).items() if bad}
        assert {f.code for f in check(one, ARITHMETIC)} == fires


@pytest.mark.parametrize("base", BASES)
def test_scalar_fields_beside_columns(base: str) -> None:
    """Fields that do not vary may stay scalars; the answers are those of full columns."""
    job = random_job(base, seed=3, rows=40)
    mixed = job.with_plan(job.plan.replace(tp=4, zero_stage=3, sequence_parallel=True))
    columns = job.with_plan(
        job.plan.replace(
            tp=np.full(40, 4), zero_stage=np.full(40, 3), sequence_parallel=np.full(40, True)
        )
    )
    left, right = mask(mixed, ARITHMETIC), mask(columns, ARITHMETIC)
    for code in left:
        assert np.array_equal(np.broadcast_to(left[code], 40), np.broadcast_to(right[code], 40)), (
            code
        )


@pytest.mark.parametrize("base", BASES)
def test_rows_down_and_options_across_broadcast(base: str) -> None:
    """A search writes meshes down and options across; the block equals the flat column."""
    job, down = random_job(base, seed=5, rows=6), ("tp", "pp", "cp", "dp", "ep", "micro_batch_size")
    block, flat = {}, {}
    for f in (f.name for f in fields(Plan) if f.name != "layout"):
        column = getattr(job.plan, f)
        block[f] = column[:, None] if f in down else column[None, :]
        flat[f] = np.broadcast_to(block[f], (6, 6)).ravel()
    across = mask(job.with_plan(Plan(**block)), ARITHMETIC)
    single = mask(job.with_plan(Plan(**flat)), ARITHMETIC)
    for code, bad in across.items():
        square = np.broadcast_to(single[code], 36).reshape(6, 6)
        assert np.array_equal(np.broadcast_to(bad, (6, 6)), square), code
