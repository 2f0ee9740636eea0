"""No values, however odd, keep a configuration from being read and drafted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.framework import framework
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text

NAMES = ("torchtitan", "nanotron", "verl", "paddlenlp", "paddle", "colossalai", "galvatron")
ODD = st.one_of(
    st.integers(-3, 9),
    st.sampled_from([0, -1, 10**12, 2.5, float("1e300"), "", "1F1B", "full", "op", "bf16", "8B"]),
    st.booleans(),
    st.none(),
    st.text(max_size=6),
    st.lists(st.one_of(st.integers(-1, 4), st.text(max_size=3)), max_size=3),
)


def settings_of(name):
    """Random values for fields that mean something, and for some that do not."""
    fields = framework(name).table.fields
    names = [f.name for f in fields if f.variable and not f.name.endswith(".*")]
    others = [f.name for f in fields if not f.variable and not f.name.endswith(".*")][:60]
    return st.dictionaries(st.sampled_from([*names, *others]), ODD, max_size=12)


def nested(flat):
    """Dotted names as tables; a name that is a table already keeps it."""
    tree: dict = {}
    for name, value in flat.items():
        node = tree
        *above, last = name.split(".")
        for part in above:
            below = node.get(part)
            node[part] = below if isinstance(below, dict) else {}
            node = node[part]
        if not isinstance(node.get(last), dict):
            node[last] = value
    return tree


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=80)
@given(data=st.data())
def test_a_draft_or_a_finding(name, data):
    text = json.dumps(nested(data.draw(settings_of(name))))
    reading = read_text(text, file="x.json", framework=name)
    try:
        drafted = draft(reading)
    except MeshwrightError:
        return
    assert drafted.job.plan.tp >= 1
    assert drafted.other.plan.pp >= 1


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(data=st.data())
def test_readings_do_not_depend_on_the_order_of_settings(name, data):
    flat = data.draw(settings_of(name))
    turned = dict(reversed(flat.items()))
    one, two = (
        read_text(json.dumps(nested(f)), file="x.json", framework=name) for f in (flat, turned)
    )
    if nested(flat) == nested(turned):
        assert {k: v.value for k, v in one.values.items()} == {
            k: v.value for k, v in two.values.items()
        }
