"""Holds for every demand: it has a page, its examples behave, and no other version is accused."""

from __future__ import annotations

import re

import pytest
from demand_examples import arguments, judged, judged_knobs

from meshwright.rules.demand import Demand, all_demands, message, scope_name, verdict, word

DEMANDS = all_demands()
KINDS = ("Fails", "Passes")
EXAMPLES = [(d, kind, text) for d in DEMANDS for kind in KINDS for text in d.examples(kind)]
SECTIONS = {"DAT": "4", "MOD": "5", "CMP": "6", "COM": "7"}
CONFIDENCE = {"run", "read", "doc", "paper", "arithmetic", "heuristic"}
_BOUND = re.compile(r"([\w.-]+?)\s*(>=|<=|==|@)\s*([\d.]+)")


def _name(demand: Demand) -> str:
    return f"{demand.code}-{demand.condition.__name__}"


each_demand = pytest.mark.parametrize("demand", DEMANDS, ids=_name)


def test_demands_are_found_in_all_four_classes() -> None:
    assert {d.code[:3] for d in DEMANDS} == set(SECTIONS)
    assert len({d.code for d in DEMANDS}) > 150


def test_one_code_has_a_demand_for_each_scope() -> None:
    assert len({(d.code, d.scope) for d in DEMANDS}) == len(DEMANDS)


@each_demand
def test_a_demand_has_a_page(demand: Demand) -> None:
    assert len(demand.summary) > 30
    assert demand.summary.endswith((".", "?"))
    assert all(demand.examples(kind) for kind in KINDS)
    assert demand.source
    assert demand.consequence
    assert demand.confidence in CONFIDENCE
    assert demand.section == f"{SECTIONS[demand.code[:3]]}.{demand.code[3]}"
    assert demand.describe is not None or demand.says


@pytest.mark.parametrize(
    ("demand", "kind", "text"),
    EXAMPLES,
    ids=[f"{_name(d)}-{kind}-{n}" for n, (d, kind, _) in enumerate(EXAMPLES)],
)
def test_an_example_does_what_it_says(demand: Demand, kind: str, text: str) -> None:
    found = judged(demand, text)
    if kind == "Fails":
        assert found.in_scope
        assert found.fires, found.knobs.lacking
    elif found.in_scope:
        assert found.fires is False, found.knobs.lacking


@each_demand
def test_a_demand_is_judged_on_an_example_that_passes(demand: Demand) -> None:
    assert any(judged(demand, text).in_scope for text in demand.examples("Passes"))


@each_demand
def test_a_message_prints_the_values(demand: Demand) -> None:
    for text in demand.examples("Fails"):
        found = judged(demand, text)
        says = message(demand, found.knobs)
        assert says != demand.title
        assert "{" not in says or "{" in str(found.knobs.looked_at)
        seen = found.knobs.looked_at
        shown = any(name in says or word(value) in says for name, value in seen.items())
        assert shown or demand.describe is not None, says


@each_demand
def test_a_fix_silences_the_demand(demand: Demand) -> None:
    if demand.suggest is None:
        return
    repaired = []
    for text in demand.examples("Fails"):
        if text.startswith("knobs("):
            values = arguments(text)
            changes = dict(demand.suggest(judged(demand, text).knobs))
            assert changes
            fires = judged_knobs(demand, values | changes).fires
            repaired.append(not fires)
    assert not repaired or any(repaired)


@each_demand
def test_a_version_out_of_scope_is_not_accused(demand: Demand) -> None:
    for item in demand.scope.split(";"):
        for name, operator, limit in _BOUND.findall(item):
            outside = "99" if operator == "<=" else "0.0.1"
            assert scope_name(item, {name: outside}) == ""
            assert scope_name(item, {name: limit}) == name


@each_demand
def test_nothing_stated_accuses_nobody(demand: Demand) -> None:
    bare = judged_knobs(demand, {}).knobs
    assert verdict(demand, bare) is not True
