"""Located reading: every value has its place, every malformed text a finding, none a traceback."""

from __future__ import annotations

import json
import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.base.locate import parse, read

TOML = '''# a comment with = and [brackets]
title = "a # b"

[model]
name = "x"   # trailing
sizes = [1,
  2, # two
  3]
"odd key" = { a = 1, b.c = 2 }
text = """
[not.a.table]
key = 1
"""

[[links]]
domain = 8
[[links]]
domain = 64
[links.extra]
when = 2024-01-01 07:00:00
'''


@pytest.mark.parametrize(
    ("key", "line", "column"),
    [
        (("title",), 2, 1),
        (("model",), 4, 1),
        (("model", "name"), 5, 1),
        (("model", "sizes", 2), 8, 3),
        (("model", "odd key", "a"), 9, 15),
        (("model", "odd key", "b", "c"), 9, 22),
        (("links", 1, "domain"), 18, 1),
        (("links", 1, "extra", "when"), 20, 1),
    ],
)
def test_toml_places(key, line, column):
    place = parse(TOML, syntax="toml").places[key]
    assert (place.line, place.column) == (line, column)


def paths(value, key=()):
    yield key
    if isinstance(value, dict):
        for name, item in value.items():
            yield from paths(item, (*key, name))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths(item, (*key, index))


def test_every_toml_value_has_a_place():
    document = parse(TOML, syntax="toml")
    assert set(paths(document.data)) == set(document.places)


def test_json_places():
    document = parse('{\n  "a": [1,\n   {"b": 2.5}],\n  "c": null }', syntax="json")
    assert document.data == {"a": [1, {"b": 2.5}], "c": None}
    assert document.places[("a", 1, "b")].line == 3
    assert document.places[("a", 1, "b")].column == 5
    assert document.places[("c",)].line == 4


def test_yaml_places_and_merge_keys():
    text = "base: &b\n  x: 1\n  y: 2\nuse:\n  <<: *b\n  y: 3\n"
    document = parse(text, syntax="yaml")
    assert document.data == yaml.safe_load(text)
    assert document.places[("use", "y")].line == 6


@pytest.mark.parametrize(
    ("syntax", "text", "line", "reason"),
    [
        ("json", '{"a": 1,\n "a": 2}', 2, "twice"),
        ("json", '{"a":\n NaN}', 2, "NaN"),
        ("json", '{"a":\n\n -Infinity}', 3, "Infinity"),
        ("json", '{"a": 1e999}', 1, "too large"),
        ("json", '{"a": ' + "9" * 5000 + "}", 1, "digits"),
        ("json", '{"a": 1,}', 1, "comma"),
        ("json", '{"a" 1}', 1, "':'"),
        ("json", "{'a': 1}", 1, "quotes"),
        ("json", '{"a": 1} x', 1, "more text"),
        ("json", '{"a": "x\n"}', 1, "control"),
        ("json", "", 1, "ends too early"),
        ("json", "[" * 5000, 1, "deeper"),
        ("toml", "a = 1\na = 2\n", 2, "overwrite"),
        ("toml", "a = 1\nb = \n", 2, "value"),
        ("toml", "a = " + "[" * 3000 + "]" * 3000, 0, "deeper"),
        ("toml", "a = " + "[" * 100 + "]" * 100, 1, "deeper"),
        ("toml", "b = 1\n" + "a." * 50000 + "b = 1", 2, "deeper"),
        ("yaml", "a: 1\nb: [1, 2\n", 3, "expected"),
        ("yaml", "a: 1\na: 2\n", 2, "twice"),
        ("yaml", "a: !!python/object:os.system 1\n", 1, "tag"),
        ("yaml", "a: .nan\n", 1, "number"),
        ("yaml", "a: 1\n---\nb: 2\n", 2, "another document"),
        ("yaml", "[" * 3000, 0, "deeper"),
    ],
)
def test_malformed_text_is_a_finding_with_its_line(syntax, text, line, reason):
    with pytest.raises(InvalidInput) as caught:
        parse(text, syntax=syntax, file="f")
    (finding,) = caught.value.findings
    assert finding.line == line
    assert reason in finding.message
    assert finding.file == "f"


def test_yaml_aliases_cannot_explode():
    text = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for here, before in zip("bcdefgh", "abcdefg", strict=True):
        text += f"{here}: &{here} [{','.join(['*' + before] * 10)}]\n"
    with pytest.raises(InvalidInput, match="aliases"):
        parse(text, syntax="yaml")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), (b"\xff\xfe\n", "UTF-8"), (b" " * (3 * 2**20), "larger than")],
)
def test_unreadable_files_are_findings(tmp_path, content, reason):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=reason):
        read(path)


def test_a_folder_and_an_unknown_ending_are_findings(tmp_path):
    (tmp_path / "d.toml").mkdir()
    with pytest.raises(InvalidInput, match="cannot read"):
        read(tmp_path / "d.toml")
    with pytest.raises(InvalidInput, match="syntax"):
        read(tmp_path / "d.ini")


def test_a_byte_order_mark_and_crlf_do_no_harm(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    document = read(path)
    assert document.data == {"a": 1, "b": 2}
    assert document.places[("b",)].line == 2


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(values, st.sampled_from([None, 1, "\t"]))
def test_json_agrees_with_the_standard_library(value, indent):
    text = json.dumps(value, indent=indent)
    document = parse(text, syntax="json")
    assert document.data == json.loads(text)
    assert set(paths(document.data)) == set(document.places)


@given(st.text(alphabet="{}[]\",:\\ntrue01.e-+ \n'#=abc&*!", max_size=40))
def test_soup_is_parsed_or_refused(text):
    for syntax in ("json", "toml", "yaml"):
        try:
            document = parse(text, syntax=syntax)
        except InvalidInput:
            continue
        if syntax == "toml":
            assert document.data == tomllib.loads(text)
            assert set(paths(document.data)) <= set(document.places)


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("json", '{"a": [1, {"b": 2.5}],\r\n "c": "x y"}'),
        ("toml", 'a.d = [1, {b = 2.5}] # c\r\n[t]\r\nc = "x y"\r\n'),
        ("yaml", "a: [1, {b: 2.5}] # c\r\nc: 'x y'\r\nd:\r\n  e: 3\r\n"),
    ],
)
def test_spans_hold_exactly_the_values_and_keys(syntax, text):
    document = parse(text, syntax=syntax)
    for key, (start, end) in document.spans.items():
        value = document.value(key)
        if isinstance(value, str | int | float):
            assert text[start:end].strip("\"'") == str(value)
    for key, (start, end) in document.key_spans.items():
        assert text[start:end].strip('"').split(".")[-1] == key[-1]
    assert len(document.key_spans) >= 3


def test_lenient_json_has_comments_and_trailing_commas():
    from meshwright.base.locate.json import parse_json

    text = '# a\n{"x": 1, // b\n /* c */ "y": [1, 2,], }\n# d'
    document = parse_json(text, lenient=True)
    assert document.data == {"x": 1, "y": [1, 2]}
    assert text[slice(*document.spans[("y",)])] == "[1, 2,]"
    with pytest.raises(InvalidInput):
        parse_json(text)
