"""No value of any type breaks a demand, its message or its fix; fixes are values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from demand_examples import first_name, stated_value
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright.rules.framework as package
from meshwright.frameworks.knobs import Knobs
from meshwright.rules.demand import Demand, all_demands, message, suggested, verdict

_WORD = re.compile(r'\bk\.(?:get\("(\w+)"|(\w+))|_degree\(k, "(\w+)"\)')
_NO_VARIABLE = frozenset(("get", "is_stated", "framework", "version"))


def _variables() -> list[str]:
    """Every variable that a demand of the package asks for."""
    found: set[str] = set()
    for path in Path(package.__path__[0]).rglob("*.py"):
        for groups in _WORD.findall(path.read_text(encoding="utf-8")):
            found |= set(groups)
    return sorted(found - _NO_VARIABLE - {""})


_numbers = st.one_of(st.integers(-2, 9), st.just(10**30), st.floats(), st.booleans())
_words = st.sampled_from(("", "auto", "1f1b", "alltoall", "FULL_SHARD", "cpu", "2"))
_anything = st.one_of(
    _numbers,
    _words,
    st.none(),
    st.lists(st.one_of(_numbers, _words), max_size=3),
    st.dictionaries(_words, _numbers, max_size=2),
)
_names = st.sampled_from(_variables())
_values = st.dictionaries(_names, _anything, max_size=60)


def test_variables_are_found() -> None:
    assert {"tp", "zero_stage", "prefetch_bucket_size", "layer_tp_list"} <= set(_variables())


@settings(max_examples=20, deadline=None)
@given(_values)
def test_no_value_breaks_a_demand(values: dict[str, Any]) -> None:
    stated = {name: stated_value(name, value) for name, value in values.items()}
    for demand in all_demands():
        knobs = Knobs(first_name(demand), "1.0", stated, facts={})
        if verdict(demand, knobs):
            assert message(demand, knobs)
            assert isinstance(suggested(demand, knobs), dict)


@pytest.mark.parametrize("demand", all_demands(), ids=lambda d: d.code)
def test_absurd_degrees_break_no_demand(demand: Demand) -> None:
    for number in (0, -1, 10**30):
        stated = {name: stated_value(name, number) for name in _variables()}
        knobs = Knobs(first_name(demand), "", stated, facts={})
        if verdict(demand, knobs):
            assert message(demand, knobs)
            assert isinstance(suggested(demand, knobs), dict)
