"""What a model or compute rule proposes for a plan field silences it, on any plan."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import BASES, random_job

from meshwright.plan.job import Job
from meshwright.plan.plan import Plan
from meshwright.rules.rule import Rule, all_rules, as_numpy, finding

RULES = [r for r in all_rules() if r.code[:3] in ("MOD", "CMP") and not r.predictive]
PLAN_FIELDS = {f.name for f in fields(Plan)}
ROWS = 8


def _fires(rule_: Rule, job: Job) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.all(rule_.condition(job)))


def _silent(rule_: Rule, job: Job, changes: dict[str, Any]) -> bool:
    return not _fires(rule_, as_numpy(job.with_plan(job.plan.replace(**changes))))


@settings(max_examples=15, deadline=None)
@given(base=st.sampled_from(sorted(BASES)), seed=st.integers(0, 2**31))
def test_a_proposed_value_silences_its_rule(base: str, seed: int) -> None:
    column = random_job(base, seed, ROWS)
    for index in range(ROWS):
        job = as_numpy(column.with_plan(column.plan.row(index)))
        for rule_ in (r for r in RULES if r.suggest and _fires(r, job)):
            assert finding(rule_, job).message
            fixes = {k: v for k, v in rule_.suggest(job).items() if v and k in PLAN_FIELDS}
            firsts = {name: values[0] for name, values in fixes.items()}
            for name, values in fixes.items():
                for value in values:
                    alone, together = {name: value}, {**firsts, name: value}
                    assert _silent(rule_, job, alone) or _silent(rule_, job, together), (
                        rule_.code,
                        alone,
                    )
