"""Holds for every rule: it has a page, its examples behave, it names what it reads."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from random_plans import BASES, random_job

from meshwright.base.finding import Severity
from meshwright.plan.plan import Plan
from meshwright.rules.example import example_job
from meshwright.rules.rule import Rule, all_rules, as_numpy, check, mask, pruning_rules

RULES = all_rules()
EXAMPLES = [
    (r, kind, text) for r in RULES for kind in ("Fails", "Passes") for text in r.examples(kind)
]
SECTIONS = {"DAT": "4", "MOD": "5", "CMP": "6", "COM": "7"}
CONFIDENCE = {"run", "read", "doc", "paper", "arithmetic", "heuristic"}


def test_rules_are_found_in_all_four_classes() -> None:
    assert {r.code[:3] for r in RULES} == set(SECTIONS)
    assert len(RULES) > 80


def test_codes_and_titles_are_unique() -> None:
    assert len({r.code for r in RULES}) == len(RULES)
    assert len({r.title for r in RULES}) == len(RULES)


@pytest.mark.parametrize("rule_", RULES, ids=lambda r: r.code)
def test_a_rule_has_a_page(rule_: Rule) -> None:
    assert len(rule_.summary) > 30
    assert rule_.summary.endswith((".", "?"))
    assert rule_.examples("Fails")
    assert rule_.examples("Passes")
    assert rule_.source
    assert rule_.confidence in CONFIDENCE
    assert rule_.section == f"{SECTIONS[rule_.code[:3]]}.{rule_.code[3]}"
    assert rule_.describe is not None


@pytest.mark.parametrize(
    ("rule_", "kind", "text"),
    EXAMPLES,
    ids=[f"{r.code}-{kind}-{n}" for n, (r, kind, _) in enumerate(EXAMPLES)],
)
def test_an_example_does_what_it_says(rule_: Rule, kind: str, text: str) -> None:
    findings = check(example_job(text), [rule_])
    assert len(findings) == (kind == "Fails")


@pytest.mark.parametrize("rule_", RULES, ids=lambda r: r.code)
def test_a_message_prints_values_and_a_fix_names_fields(rule_: Rule) -> None:
    for text in rule_.examples("Fails"):
        found = check(example_job(text), [rule_])[0]
        assert re.search(r"\d|True|False|None|\w+ = \w+", found.message), found.message
        assert "array(" not in found.message + found.hint
        assert "np." not in found.message + found.hint
        assert found.severity is rule_.severity
        assert found.reason == rule_.summary


@pytest.mark.parametrize("rule_", RULES, ids=lambda r: r.code)
def test_a_fix_of_the_plan_is_legal(rule_: Rule) -> None:
    """A proposed value silences the rule, alone or with the first proposal for each other field."""
    names = {f.name for f in fields(Plan)}
    for text in rule_.examples("Fails"):
        job = as_numpy(example_job(text))
        fixes = rule_.suggest(job) if rule_.suggest else {}
        of_plan = {name: values for name, values in fixes.items() if name in names}
        together = {name: values[0] for name, values in of_plan.items()}
        for name, value in ((n, v) for n, values in of_plan.items() for v in values):
            tries = ({name: value}, {**together, name: value})
            plans = (job.plan.replace(**changes) for changes in tries)
            silent = [not check(job.with_plan(p), [rule_]) for p in plans]
            assert any(silent), f"{name} = {value}: {text}"


class _Recorder(Plan):
    """A plan that remembers which of its fields were asked for."""

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            _ASKED.add(name)
        return super().__getattribute__(name)


_FIELDS = {f.name for f in fields(Plan)} - {"layout"}  # a layout is never a column
_ASKED: set[str] = set()


@pytest.mark.parametrize("rule_", RULES, ids=lambda r: r.code)
def test_a_rule_names_every_plan_field_it_reads(rule_: Rule) -> None:
    """A search evaluates a rule once per distinct value of `reads`, so none may be missing."""
    asked: set[str] = set()
    for base in BASES:
        job = as_numpy(random_job(base, seed=1, rows=8))
        values = {name: getattr(job.plan, name) for name in _FIELDS}
        spying = replace(job, plan=_Recorder(**values))
        _ASKED.clear()
        with np.errstate(all="ignore"):
            rule_.condition(spying)
        asked |= _ASKED
    assert asked <= set(rule_.reads)


def test_pruning_rules_are_errors() -> None:
    rules = pruning_rules()
    assert rules
    assert all(r.severity is Severity.ERROR for r in rules)


def test_rules_on_plans_hold_for_all_frameworks() -> None:
    assert all(r.is_general for r in RULES)


def test_sensible_plans_have_no_errors() -> None:
    sensible = (
        "plan(tp=8, pp=1)",
        'plan(model="llama-3-70b", tp=8, pp=4)',
        'plan(model="qwen3-30b-a3b", ep=8, tp=1)',
        "plan(zero_stage=3, tp=1)",
    )
    for text in sensible:
        errors = [f for f in check(example_job(text)) if f.severity is Severity.ERROR]
        assert not errors, text


@pytest.mark.parametrize("base", BASES)
def test_masks_are_booleans_of_the_column_length(base: str) -> None:
    for code, bad in mask(random_job(base, seed=7, rows=50), RULES).items():
        assert np.asarray(bad).dtype == bool, code
        assert np.shape(bad) in ((), (50,)), code
