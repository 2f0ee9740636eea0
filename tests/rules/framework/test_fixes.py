"""A demand's fix, carried out in the text of its failing example, silences it there."""

from __future__ import annotations

import re

import pytest

from meshwright.frameworks.read import read_text
from meshwright.frameworks.text.edit import apply
from meshwright.rules.demand import Demand, all_demands
from meshwright.rules.lint import lint

_CONFIGURATION = re.compile(r"([\w-]+)(?: ([\w.]+))?: *(.*)", re.DOTALL)
CASES = [
    (demand, text)
    for demand in all_demands()
    if demand.suggest is not None
    for text in demand.examples("Fails")
    if not text.startswith("knobs(")
]


@pytest.mark.parametrize(
    ("demand", "text"), CASES, ids=[f"{d.code}-{n}" for n, (d, _) in enumerate(CASES)]
)
def test_an_edit_silences_its_demand(demand: Demand, text: str) -> None:
    found = _CONFIGURATION.fullmatch(text)
    assert found is not None
    name, version, words = found.groups()
    before = lint(read_text(words, framework=name, version=version or ""), predict=False)
    mine = [f for f in before.findings if f.code == demand.code and f.edits]
    for finding in mine:
        repaired = apply(words, finding.edits)
        assert repaired != words
        after = lint(read_text(repaired, framework=name, version=version or ""), predict=False)
        assert demand.code not in {f.code for f in after.findings}, repaired


def test_some_edits_are_tried() -> None:
    assert len(CASES) > 20
