"""A deferred mapping is worked out once, and only when it is asked for something."""

from __future__ import annotations

import pytest

from meshwright.base.deferred import Deferred


@pytest.fixture
def made():
    return []


@pytest.fixture
def mapping(made):
    def make():
        made.append(1)
        return {"a": 1, "b": 2}

    return Deferred(make)


def test_nothing_is_worked_out_before_it_is_asked_for(mapping, made):
    assert made == []
    assert mapping["a"] == 1
    assert dict(mapping) == {"a": 1, "b": 2}
    assert made == [1]


@pytest.mark.parametrize(
    "asked", [len, list, repr, bool, lambda m: "a" in m, lambda m: m.get("z"), lambda m: m == {}]
)
def test_every_question_is_answered_as_by_a_dictionary(asked, mapping, made):
    assert asked(mapping) == asked({"a": 1, "b": 2})
    assert made == [1]


def test_a_missing_name_is_a_key_error(mapping):
    with pytest.raises(KeyError):
        mapping["z"]
