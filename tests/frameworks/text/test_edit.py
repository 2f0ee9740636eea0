"""Edits change one setting and nothing else, and keep comments and layout."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import SAMPLES

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Edit
from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source, syntax_of
from meshwright.frameworks.text.edit import (
    apply,
    compatible,
    insert,
    insert_all,
    remove,
    replace_value,
)

SPLIT = ("--lr", "--min-lr", "--weight-decay")  # in a text split at blanks: no blank can be in it
COMMENT = re.compile(r"(?:#|//) ?[a-z].*")


def parsed(file, text):
    return parse_source(Source(file=file, text=text, syntax=syntax_of(file, text)))


def pairs(file, text):
    return [(s.name, s.value) for s in parsed(file, text).settings]


def comments(text):
    return COMMENT.findall(text)


@pytest.mark.parametrize("file", SAMPLES)
@pytest.mark.parametrize("value", ["16", "abc", "a b", 'x"y'])
def test_a_replaced_value_is_read_back_and_all_others_stay(file, value):
    text = SAMPLES[file]
    for number, setting in enumerate(parsed(file, text).settings):
        if value == "a b" and "OPTIONS" in text and setting.name in SPLIT:
            with pytest.raises(MeshwrightError):
                replace_value(setting, value)
            continue
        changed = apply(text, [replace_value(setting, value)])
        expected = pairs(file, text)
        after = pairs(file, changed)
        assert str(after[number][1]) == value
        expected[number] = after[number]
        assert after == expected
        assert comments(changed) == comments(text)


@pytest.mark.parametrize("file", SAMPLES)
def test_a_removed_setting_is_gone_and_all_others_stay(file):
    text = SAMPLES[file]
    removed = 0
    for number, setting in enumerate(parsed(file, text).settings):
        expected = pairs(file, text)
        del expected[number]
        try:
            changed = apply(text, [remove(setting)])
        except MeshwrightError:
            continue
        removed += 1
        left = [(n, v) for n, v in pairs(file, changed) if v not in ({}, None)]
        assert left == [(n, v) for n, v in expected if v not in ({}, None)]
    assert removed >= len(pairs(file, text)) - 2


@pytest.mark.parametrize("file", SAMPLES)
def test_an_inserted_setting_is_read_back_and_all_others_stay(file):
    text = SAMPLES[file]
    syntax = syntax_of(file, text)
    source = Source(file=file, text=text, syntax=syntax)
    settings = parsed(file, text).settings
    name = "new.group.field" if syntax in ("json", "toml", "yaml") else "x.new_field"
    if syntax == "shell" and file != "hydra.sh":
        name = "--new-field"
    near = settings[-1]
    if file == "plain.py":
        name, near = "data.new_field", settings[-2]
    changed = apply(text, [insert(source, name, 7, near)])
    before, after = pairs(file, text), pairs(file, changed)
    assert [n for n, v in after if str(v) == "7"] == [name]
    assert [(n, v) for n, v in after if n != name] == before
    assert comments(changed) == comments(text)


@pytest.mark.parametrize(
    ("file", "name", "value", "expected"),
    [
        ("array.sh", "--new", 1, "    --swiglu\n    --new 1\n)"),
        ("continued.sh", "--new", 1, "    --save-interval=100 \\\n    --new 1\necho"),
        ("ds.json", "zero_optimization.x", 1, '"device": "cpu"},\n    "x": 1\n'),
        ("ds.json", "fp16.x", True, '"loss_scale": 0, "x": true}'),
        ("titan.toml", "training.x", "y", 'b = "c" }\nx = "y"\n\n[par'),
        ("titan.toml", "checkpoint.enable", True, "\n[checkpoint]\nenable = true\n"),
        ("hf.yaml", "model.x", 1, "'a b'\n  x: 1\nparallel"),
        ("hf.yaml", "parallel.x", 1, "tp: 2, x: 1}"),
        ("recipe.py", "training.x", 1, "seq_len = 4096\n    config.training.x = 1\n"),
    ],
)
def test_an_insertion_has_the_manner_of_its_neighbors(file, name, value, expected):
    text = SAMPLES[file]
    source = Source(file=file, text=text, syntax=syntax_of(file, text))
    assert expected in apply(text, [insert(source, name, value)])


def test_a_variable_of_one_setting_changes_at_its_assignment_and_a_shared_one_at_its_use():
    text = SAMPLES["array.sh"]
    found = {s.name: s for s in parsed("array.sh", text).settings}
    alone = apply(text, [replace_value(found["--tensor-model-parallel-size"], "4")])
    assert "\nTP=4\n" in alone
    shared = apply(text, [replace_value(found["--context-parallel-size"], "2")])
    assert "\nSHARED=4\n" in shared
    assert "--context-parallel-size 2\n" in shared


def test_overlapping_edits_are_refused_and_sorted_out():
    edits = [Edit(file="", start=0, end=2, text="x"), Edit(file="", start=1, end=3, text="y")]
    with pytest.raises(MeshwrightError, match="overlap"):
        apply("abcd", edits)
    kept, later = compatible(edits)
    assert apply("abcd", kept) == "xcd"
    assert later == (edits[1],)


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]),
    min_size=1,
    max_size=12,
)


def literal(text):
    """The number, truth or null that a text spells."""
    words = {"true": True, "false": False, "null": None, "none": None}
    return words[text.lower()] if text.lower() in words else float(text.replace("_", ""))


@settings(deadline=None, max_examples=60)
@given(file=st.sampled_from(sorted(SAMPLES)), pick=st.integers(0, 50), value=WORDS)
def test_any_text_is_written_exactly_or_refused(file, pick, value):
    text = SAMPLES[file]
    found = parsed(file, text).settings
    number = pick % len(found)
    try:
        edit = replace_value(found[number], value)
    except MeshwrightError:
        return
    after = parsed(file, apply(text, [edit])).settings
    read = after[number].value
    assert str(read) == value or read == literal(value)
    assert [s.value for i, s in enumerate(after) if i != number] == [
        s.value for i, s in enumerate(found) if i != number
    ]


TABLES = {"fsdp.x": 1, "v": 2, "fsdp.w": "b", "fsdp.u.z": True, "old.d": 3, "old.m.k": 4}


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (
            "a.yaml",
            "a: 1\nold:\n  c: 2\n",
            "a: 1\nold:\n  c: 2\n  d: 3\n  m:\n    k: 4\n"
            "fsdp:\n  x: 1\n  w: b\n  u:\n    z: true\nv: 2\n",
        ),
        (
            "a.toml",
            "a = 1\n\n[old]\nc = 2\n",
            "a = 1\nv = 2\n\n[old]\nc = 2\nd = 3\n"
            '\n[fsdp]\nx = 1\nw = "b"\n\n[fsdp.u]\nz = true\n\n[old.m]\nk = 4\n',
        ),
        (
            "a.json",
            '{"a": 1, "old": {"c": 2}}',
            '{"a": 1, "old": {"c": 2, "d": 3, "m": {"k": 4}}, '
            '"fsdp": {"x": 1, "w": "b", "u": {"z": true}}, "v": 2}',
        ),
    ],
)
def test_several_settings_of_a_table_that_is_missing_become_one_block(file, text, expected):
    source = Source(file=file, text=text, syntax=syntax_of(file, text))
    result = apply(text, insert_all(source, TABLES))
    assert result == expected
    stated = dict(pairs(file, result))
    assert stated == {**dict(pairs(file, text)), **TABLES}


def test_additions_that_break_each_other_are_refused():
    source = Source(file="a.json", text="{}", syntax="json")
    with pytest.raises(MeshwrightError):
        insert_all(source, {"a": 1, "b": 2})
