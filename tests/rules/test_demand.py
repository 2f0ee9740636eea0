"""Demands: what a scope means, what a message prints, what is not judged."""

from __future__ import annotations

from typing import Any

import pytest
from demand_examples import stated_value
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Severity
from meshwright.frameworks.framework import framework
from meshwright.frameworks.knobs import Knobs
from meshwright.frameworks.setting import UNKNOWN, Value
from meshwright.rules.demand import (
    Demand,
    applies,
    demand,
    made_by_older,
    message,
    scope_name,
    verdict,
    word,
)


def _demand(scope: str = "megatron-core", **changes: Any) -> Demand:
    """A demand that fires where tp does not divide the heads."""
    words: dict[str, Any] = {"consequence": "refused", "says": "{heads} heads over tp {tp}"}
    facts = {"severity": Severity.ERROR, "section": "5.1", "scope": scope, "source": "a test"}

    @demand("MOD101", "Heads", **{**words, **facts, **changes})
    def heads_divide(k: Knobs) -> bool:
        """Heads are cut."""
        return bool(k.heads % k.tp)

    return heads_divide


def _knobs(**values: Any) -> Knobs:
    stated = {name: stated_value(name, value) for name, value in values.items()}
    return Knobs("megatron-lm", "", stated, facts={})


@pytest.mark.parametrize(
    ("scope", "version", "holds"),
    [
        ("a", "", True),
        ("a", "0.1", True),
        ("a>=0.16", "0.16.1", True),
        ("a>=0.16", "0.15", False),
        ("a>=0.16", "1", True),
        ("a<=0.14", "0.14.3", True),
        ("a<=0.14", "0.15", False),
        ("a<=0.14", "", False),
        ("a>=0.9,<=0.12", "0.12.3", True),
        ("a>=0.9, <=0.12", "0.13", False),
        ("a>=0.9,<=0.12", "0.8.2", False),
        ("a@0.6", "0.7", True),
        ("a@0.6", "0.5", False),
        ("a==0.6", "0.6.2", True),
        ("b; a>=0.2", "0.3", True),
        ("b", "0.3", False),
        ("ab", "0.3", False),
    ],
)
def test_a_scope_names_frameworks_and_ranges(scope: str, version: str, holds: bool) -> None:
    assert scope_name(scope, {"a": version}) == ("a" if holds else "")


@given(st.text(max_size=30), st.text(max_size=10))
def test_no_scope_and_no_version_breaks(scope: str, version: str) -> None:
    assert scope_name(scope, {"a": version}) in ("", "a")


def test_the_newest_version_is_meant_and_what_lies_below_has_none() -> None:
    bridge, core = framework("megatron-bridge"), framework("megatron-lm")
    old, new = _demand("megatron-core<=0.14"), _demand("megatron-core>=0.16")
    assert not applies(old, core)
    assert applies(old, core, "0.14.0")
    assert not applies(old, bridge, "0.6")
    assert applies(new, core)
    assert applies(new, bridge)
    assert made_by_older(old, core)
    assert made_by_older(old, bridge)
    assert not made_by_older(new, core)


def test_what_is_missing_unreadable_or_no_number_is_not_judged() -> None:
    rule = _demand()
    assert verdict(rule, _knobs(heads=10, tp=4)) is True
    assert verdict(rule, _knobs(heads=8, tp=4)) is False
    for odd in (None, UNKNOWN, "four", [4], 0):
        assert verdict(rule, _knobs(heads=10, tp=odd)) is None
    lacking = _knobs(heads=10)
    assert verdict(rule, lacking) is None
    assert lacking.lacking == ["tp"]


def test_an_unreadable_value_is_not_taken_for_an_absent_one() -> None:
    knobs = Knobs("megatron-lm", "", {"tp": Value(value=UNKNOWN)}, facts={"pp": 2})
    assert knobs.get("cp", 1) == 1
    assert knobs.get("pp", 1) == 2
    rule = _demand()
    rule.condition = lambda k: k.get("tp", 1) > 0
    assert verdict(rule, knobs) is None


def test_a_message_prints_values_as_words() -> None:
    assert message(_demand(), _knobs(heads=10, tp=4)) == "10 heads over tp 4"
    assert message(_demand(says=""), _knobs(heads=10, tp=4)) == "Heads"
    assert message(_demand(), _knobs(heads=10)) == "10 heads over tp not set"
    printed = {None: "not set", True: "true", "bf16": "bf16", 1.5: "1.5", (1, True): "1, true"}
    assert {value: word(value) for value in printed} == printed
    assert word([]) == "none"


def test_a_fix_that_is_always_the_same_needs_no_function() -> None:
    rule = _demand(suggest={"tp": 2})
    assert rule.suggest is not None
    assert rule.suggest(_knobs(heads=10, tp=4)) == {"tp": 2}


def test_a_code_is_checked() -> None:
    with pytest.raises(MeshwrightError, match="not a rule code"):
        demand(
            "MOD9",
            "t",
            severity=Severity.INFO,
            section="5.1",
            scope="a",
            source="s",
            consequence="",
        )


def test_examples_run_to_the_next_one_or_a_blank_line() -> None:
    rule = _demand()

    def page(_k: Knobs) -> bool:
        """Why.

        Fails: megatron-lm 0.19: --tp 3
            --pp 2
        Passes: knobs(tp=2)

        The rest.
        """
        return False

    rule.condition = page
    assert rule.examples("Fails") == ("megatron-lm 0.19: --tp 3\n    --pp 2",)
    assert rule.examples("Passes") == ("knobs(tp=2)",)
