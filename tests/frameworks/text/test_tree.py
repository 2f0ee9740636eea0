"""JSON, TOML and YAML as settings: names, values, and the stretches that state them."""

from __future__ import annotations

import json

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.frameworks.setting import UNKNOWN, Source
from meshwright.frameworks.text import parse_source, syntax_of

TEXTS = {
    "json": """// written by hand
{
  "train_batch_size": 8, # all of it
  "fp16": {"enabled": true, "loss_scale": 0,},
  /* the rest */
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "bucket": 5.5}
}
""",
    "toml": """# titan
title = "x" # why

[training]
seq_len = 8192
degrees = [1, 2]
inner = { a = 1, b = "c" }

[parallelism]
tp = 8
""",
    "yaml": """model: &m
  hidden_size: 4096 # wide
  name: 'a b'
parallel: {dp: 1, tp: 2}
data:
  - path: x
    weight: 0.5
list: [1, 2]
""",
}


def parsed(syntax):
    return parse_source(Source(file=f"f.{syntax}", text=TEXTS[syntax], syntax=syntax))


@pytest.mark.parametrize("syntax", TEXTS)
def test_spans_hold_exactly_the_name_and_the_value(syntax):
    for setting in parsed(syntax).settings:
        text = TEXTS[syntax]
        key = text[setting.key.start : setting.key.end].strip("\"'")
        assert setting.name.endswith(key)
        stated = parse_source(
            Source(
                file="v", syntax="yaml", text=f"v: {text[setting.where.start : setting.where.end]}"
            )
        )
        assert str(stated.settings[0].value).lower().startswith(str(setting.value).lower()[:3])


@pytest.mark.parametrize("syntax", TEXTS)
def test_cutting_the_whole_removes_the_setting_alone(syntax):
    before = {s.name: s.value for s in parsed(syntax).settings}
    for setting in parsed(syntax).settings:
        if setting.whole.start == setting.whole.end:
            assert setting.name == "data.0.path"  # shares its line with the dash
            continue
        text = TEXTS[syntax][: setting.whole.start] + TEXTS[syntax][setting.whole.end :]
        after = parse_source(Source(file="f", text=text, syntax=syntax)).settings
        expected = {name: value for name, value in before.items() if name != setting.name}
        left = {s.name: s.value for s in after if s.value not in ({}, None)}
        assert left == expected, setting.name


def test_several_documents_are_told():
    text = "- 1\n---\na: 1\n---\nb: 2\n"
    result = parse_source(Source(file="f.yaml", text=text, syntax="yaml"))
    assert [s.name for s in result.settings] == ["a"]
    assert "2 more documents" in result.findings[0].message


def test_tags_are_refused():
    with pytest.raises(InvalidInput, match="tag"):
        parse_source(Source(file="f", text="a: !!python/name:os.system x", syntax="yaml"))


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ("# 4 GPUs\n{}", "json"),
        ("[a]\nb = 1", "toml"),
        ("a = 1\nb = 'x'", "toml"),
        ("a: 1\nb: {c: 2}", "yaml"),
        ("a.b=1\nc=2", "overrides"),
        ("p = Plugin(tp_size=2)", "python"),
        ("import os\nx = 1", "python"),
        ("#!/bin/sh\na: 1", "shell"),
        ("--a 1", "shell"),
        ("TP=8\nPP=$TP\ntorchrun x.py", "shell"),
        ("", "shell"),
    ],
)
def test_the_syntax_is_told_by_its_look(text, syntax):
    assert syntax_of("-", text) == syntax


def test_a_key_that_stands_twice_is_told_and_the_last_counts():
    text = "a: 1\nb: {c: 1}\nb:\n  d: 2\na: 3\n"
    result = parse_source(Source(file="f.yaml", text=text, syntax="yaml"))
    assert {s.name: s.value for s in result.settings} == {"a": 3, "b.d": 2}
    assert [f.key for f in result.findings] == ["b", "a"]
    (where,) = [s.where for s in result.settings if s.name == "a"]
    assert text[where.start - 3 : where.end] == "a: 3"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${t.n}", 4),
        ("${.k}", 7),
        ("${..t.n}", 4),
        ("${oc.select:t.n,9}", 4),
        ("${oc.select:t.q,9}", 9),
        ("${oc.env:X,true}", True),
        ("${t.q}", UNKNOWN),
        ("${multiply:2,3}", UNKNOWN),
        ("${t}", UNKNOWN),
        ("${m.v}", UNKNOWN),
        ("a/${t.n}", "a/${t.n}"),
    ],
)
def test_values_that_name_others(value, expected):
    text = f"t: {{n: 4}}\nm:\n  k: 7\n  v: {value}\n"
    result = parse_source(Source(file="f.yaml", text=text, syntax="yaml"))
    assert {s.name: s.value for s in result.settings}["m.v"] == expected
    assert len(result.findings) == (expected is UNKNOWN)


def test_a_large_document_takes_linear_time(assert_linear):
    def parsing(count):
        text = json.dumps({str(i): {"a": i, "b": [i]} for i in range(count)})
        return lambda: parse_source(Source(file="f.json", text=text, syntax="json"))

    assert_linear(parsing, 8000, limit_s=10)  # 0.6 where nothing else runs
