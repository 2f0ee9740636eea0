"""The tree of terms: what lies below a name, in order, with formulas; unknown names get help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from meshwright.base.errors import UnknownName
from meshwright.report.page import plain
from meshwright.report.terms import names_below, term_page, term_record, value_words


@dataclass
class Term:
    value: float
    unit: str = "bytes"
    formula: str = ""
    source: str = ""
    evidence: str = "assumed"
    operands: dict[str, Any] = field(default_factory=dict)


TERMS = {
    "memory.stage0.activations.attention": Term(2.0**30, formula="2*s*b*h", operands={"s": 8192}),
    "memory.stage0.weights": Term(3.0 * 2**30, source="arXiv 1910.02054, section 3"),
    "memory.stage0.activations": Term(2.0**31, formula="sum"),
    "time.forward": Term(0.25, unit="s"),
}


def test_parents_stand_before_children_at_every_depth():
    assert names_below(TERMS, "memory", depth=3) == [
        "memory.stage0",
        "memory.stage0.activations",
        "memory.stage0.activations.attention",
        "memory.stage0.weights",
    ]
    assert names_below(TERMS, "", depth=1) == ["memory", "time"]
    assert names_below(TERMS, "time.forward", depth=5) == []


def test_a_page_shows_value_formula_operands_and_source():
    text = plain(term_page(TERMS, "memory.stage0", depth=2))
    assert "2.00 GiB" in text
    assert "2*s*b*h" in text
    assert "where\n  memory.stage0.activations.attention: s = 8,192\n" in text
    assert "arXiv 1910.02054" in text


def test_a_leaf_is_shown_in_full():
    text = plain(term_page(TERMS, "memory.stage0.activations.attention"))
    assert text.startswith("memory.stage0.activations.attention = 1.00 GiB\n  formula   2*s*b*h\n")
    assert "where     s = 8,192" in text


def test_an_unknown_term_gets_the_nearest_names():
    with pytest.raises(UnknownName) as caught:
        term_page(TERMS, "memory.stage0.activation")
    assert "memory.stage0.activations" in caught.value.hint


def test_a_term_that_resembles_none_is_told_where_the_tree_starts():
    with pytest.raises(UnknownName) as caught:
        term_page(TERMS, "xyz")
    assert caught.value.hint.startswith("terms start with memory or time")


def test_a_heading_without_a_value_points_to_its_parts():
    assert "see memory.stage0\n" in plain(term_page(TERMS, "memory", depth=1))
    assert "see memory" not in plain(term_page(TERMS, "memory", depth=2))


def test_operands_that_many_terms_share_are_printed_once():
    shared = {f"time.{name}": Term(1.0, unit="s", operands={"n": 7}) for name in "abc"}
    text = plain(term_page({"time": Term(3.0, unit="s"), **shared}, "time"))
    assert text.count("n = 7") == 1
    assert "  time: n = 7" in text


def test_records_hold_everything_below():
    assert set(term_record(TERMS, "memory")["terms"]) == {
        n for n in TERMS if n.startswith("memory")
    }


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (2.0**30, "bytes", "1.00 GiB"),
        (0.5, "s", "500 ms"),
        (3, "", "3.00"),
        (1e9, "flops", "1.00B FLOP"),
    ],
)
def test_values_are_printed_in_their_unit(value, unit, expected):
    assert value_words(value, unit) == expected
