"""Plan fields as words: every value has one, every word reads back."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import numpy as np
import pytest

import meshwright as mw
from meshwright.plan.plan import Plan, RecomputeModule, Schedule
from meshwright.plan.words import CHOICES, FIELDS, MODULES, plan_words, read_word, word


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_reads_back(name):
    for number in CHOICES[name].values():
        assert read_word(name, word(name, number)) == (number, None)


def test_schedules_have_the_names_people_use():
    known = {"gpipe", "1f1b", "zb-h1", "zb-v", "v-half", "dualpipe", "dualpipe-v", "interleaved"}
    assert known <= set(CHOICES["schedule"])
    for spelling in ("1F1B", "Interleaved", "1f1b-interleaved", "ZB_H1"):
        assert read_word("schedule", spelling)[1] is None


def test_the_guide_lists_every_word():
    guide = Path(__file__).parents[2] / "docs" / "guides" / "predict-a-plan.md"
    text = guide.read_text(encoding="utf-8")
    words = [w for choices in (*CHOICES.values(), MODULES) for w in choices]
    assert [w for w in words if w not in text] == []


@pytest.mark.parametrize("number", [0, 1, 6, 2 * max(RecomputeModule) - 1])
def test_sets_of_modules_read_back(number):
    assert read_word("recompute_modules", word("recompute_modules", number)) == (number, None)


def test_every_module_has_a_name():
    assert sorted(MODULES.values()) == sorted(int(m) for m in RecomputeModule)


def test_defaults_are_legal():
    for name, default in FIELDS.items():
        if default is not None:
            assert read_word(name, word(name, default)) == (default, None)


def test_only_what_differs_is_written():
    words = plan_words(Plan(tp=2, vpp=2, pp=2, grad_bytes=2))
    assert words["tp"] == 2
    assert words["grad_bytes"] == 2
    assert words["schedule"] == "interleaved"
    assert "reduce_bytes" not in words
    assert set(plan_words(Plan(), every=True)) == set(FIELDS) - {"layout"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("tp", 0, "between 1"),
        ("tp", 2**40, "between 1"),
        ("tp", "8", "whole number"),
        ("zero_stage", 4, "between 0 and 3"),
        ("offload_optimizer", 1.5, "between 0 and 1"),
        ("offload_optimizer", float("nan"), "between"),
        ("overlap_tp", 1, "true or false"),
        ("schedule", 1, "choices"),
        ("layout", [], "list"),
        ("layout", [1, -1], "number of layers"),
        ("recompute_modules", "mlp", "list"),
    ],
)
def test_what_no_plan_can_have_is_refused(name, value, says):
    found, problem = read_word(name, value)
    assert found is None
    assert says in problem.reason


def test_an_int_passes_for_a_share():
    assert read_word("offload_optimizer", 1) == (1.0, None)
    assert Schedule(read_word("schedule", "zb_v")[0]) is Schedule.ZB_V


def test_a_plan_shows_itself_in_words():
    text = repr(Plan(tp=2, dp=4, schedule=int(Schedule.ZB_V), lora_rank=16))
    assert text.startswith("Plan(tp=2, pp=1, cp=1, ep=1, dp=4, ")
    assert "schedule='zb-v'" in text
    assert "lora_rank=16" in text
    assert "grad_bytes" not in text
    assert repr(Plan(tp=np.array([1, 2, 4]))) == "Plan(3 rows)"
    assert repr(Plan(tp=np.array([], dtype=int))) == "Plan(0 rows)"
    assert "schedule=99" in repr(Plan(schedule=99))


def test_the_verb_shows_its_parameters():
    assert {"model", "gpus", "nodes", "seq_len", "pins"} <= set(signature(mw.plan).parameters)
