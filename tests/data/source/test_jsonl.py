from __future__ import annotations

import json
import tracemalloc

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.settings import Limits
from meshwright.data.source import jsonl
from meshwright.data.source.jsonl import Fields, Unread, record_of, text_of, with_pairs

GOOD = b'{"text":"good"}\n'


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text":"a\\ud800b"}', "a\ufffdb"),
        (b'{"text":"\\ud83d\\ude00"}', "\U0001f600"),
        (b'{"text":"\\ude00\\ud83d"}', "\ufffd\ufffd"),
        (b'{"text":"\\ud83d\\ud83d\\ude00"}', "\ufffd\U0001f600"),
        (b'{"text":"\\\\ud800"}', "\\ud800"),
        (b'{"text":"\\\\\\ud800"}', "\\\ufffd"),
        (b'{"text":"x", "score": NaN, "y": [-Infinity, 1e999]}', "x"),
        (b'{"n": %s, "text":"NaN 1e999"}' % (b"9" * 5000), "NaN 1e999"),
        (b'\xef\xbb\xbf{"text":"bom"}', "bom"),
        (b'{"text":"crlf"}\r', "crlf"),
        (b'{"text":"first","text":"last"}', "last"),
        ('{"text":"\u2028 \x7f caf\u00e9"}'.encode(), "\u2028 \x7f caf\u00e9"),
        (b'{"text":""}', ""),
    ],
)
def test_what_can_be_read_is_read(read, line, text):
    found = read("x.jsonl", GOOD + line + b"\n" + GOOD)
    assert found.texts == ["good", text, "good"]
    assert not found.rejected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text":"cut', "json"),
        (b'{"text":"a"} trailing', "json"),
        (b'{"text":"a\tb"}', "json"),
        (b'{"text":01}', "json"),
        (b"\0\0\0", "json"),
        (b'{"text":"\xff"}', "encoding"),
        (b'{"other":"\xed\xa0\x80","text":"a"}', "encoding"),
        (b'["text"]', "not_an_object"),
        (b'"text"', "not_an_object"),
        (b"12", "not_an_object"),
        (b'{"txt":"a"}', "missing"),
        (b"{}", "missing"),
        (b'{"text":null}', "null"),
        (b'{"text":NaN}', "null"),
        (b'{"text":5}', "not_text"),
        (b'{"text":true}', "not_text"),
        (b'{"text":["a"]}', "not_text"),
        (b'{"text":{"text":"a"}}', "not_text"),
        (b'{"text":%s1%s}' % (b"[" * 3000, b"]" * 3000), "too_deep"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, "too_deep"),
    ],
)
def test_a_bad_line_is_set_aside_with_its_number_and_why(read, line, reason):
    found = read("x.jsonl", GOOD + b"\n" + line + b"\n" + GOOD)
    assert found.rejected == [(0, 3, reason)]
    assert found.documents == [(0, 1, "good"), (0, 4, "good")]
    assert found.excerpts == [line[:160]]


@pytest.mark.parametrize("padding", [0, jsonl.LONG_BYTES])
@pytest.mark.parametrize(
    "line",
    [
        b'{"text":"a\\ud800b"PAD}',
        b'{"text":"\\u00e9\\ud83d\\ude00"PAD,"id":7}',
        b'{"text":null PAD}',
        b'{"text":[1]PAD}',
        b'{"text" : {"b":1}PAD}',
        b'{"txt":1 PAD}',
        b'{"text":"a","text":"b"PAD,"id":"n"}',
        b'{"text":"a"PAD',
        b'{"text":"\xff"PAD}',
        b'{"text":"a"PAD,"x":"\xff"}',
        b'\xef\xbb\xbf{"text":"a"PAD}',
        b'["text"PAD]',
    ],
)
def test_long_lines_are_read_as_short_ones_are(line, padding):
    fields = Fields("text", "id")
    plain = line.replace(b"PAD", b"")
    padded = line.replace(b"PAD", b' ,"p":"%s"' % (b"x" * padding)).replace(
        b'["text" ,"p":', b'["text",'
    )

    def outcome(given: bytes) -> object:
        try:
            record = record_of(given, fields, orjson.loads)
            return text_of(record, "text"), jsonl.id_of(record, "id")
        except Unread as reason:
            return str(reason)

    assert outcome(padded) == outcome(plain)


@pytest.mark.parametrize("line", [b"", b" \t\r", b"\xef\xbb\xbf ", b" " * (jsonl.LONG_BYTES + 1)])
def test_blank_lines_are_nothing(line):
    assert record_of(line, Fields("text"), orjson.loads) is None


def test_a_long_line_takes_no_more_memory_than_its_own_length():
    line = b'{"text":"a","x":[' + b"[]," * (1 << 20) + b"[]]}"
    tracemalloc.start()
    assert record_of(line, Fields("text"), orjson.loads) == {"text": "a"}
    assert tracemalloc.get_traced_memory()[1] < 3 * len(line)
    tracemalloc.stop()


@pytest.mark.parametrize("padding", [0, jsonl.LONG_BYTES])
def test_dotted_paths_go_into_objects_unless_the_name_has_the_dot_itself(padding):
    pad = "x" * padding

    def text(record: dict, name: str) -> bytes | str:
        line = json.dumps(record | {"pad": pad}).encode()
        try:
            found = record_of(line, Fields(name), orjson.loads)
            return text_of(found, name)
        except Unread as reason:
            return str(reason)

    assert text({"a": {"b": {"c": "deep"}}}, "a.b.c") == b"deep"
    assert text({"a.b": "flat", "a": {"b": "nested"}}, "a.b") == b"flat"
    assert text({"a": {"b.c": "mixed"}}, "a.b.c") == b"mixed"
    assert text({"a": ["b"]}, "a.b") == "missing"
    assert text({"a": "b"}, "a.b") == "missing"
    assert text({"a": {"b": None}}, "a.b") == "null"


def test_names_are_strings_or_numbers(read):
    ids = ['"s"', "7", "1.5", "true", "null", "[1]", '"%s"' % ("x" * 5000)]
    lines = [b'{"text":"t","id":%s}' % name.encode() for name in ids]
    found = read("x.jsonl", b"\n".join([*lines, b'{"text":"t"}', b'{"text":"bad']), id_field="id")
    assert found.ids == ["s", "7", "1.5", "", "", "", "x" * 1024, ""]


def test_a_line_over_the_limit_is_set_aside_by_its_length_alone(read):
    line = b'{"text":"%s"}'
    limits = Limits(document_bytes=100)
    found = read(
        "x.jsonl", b"\n".join([line % b"a", line % (b"b" * 89), line % (b"c" * 90)]), limits=limits
    )
    assert [len(text) for text in found.texts] == [1, 89]
    assert found.rejected == [(0, 3, "too_long")]


@given(st.lists(st.sampled_from(["\\ud83d", "\\ude00", "\\\\", "\\n", "u", "d83d", "\\u0041"])))
def test_surrogates_are_mended_as_python_reads_them(parts):
    escaped = "".join(parts)
    read = json.loads(f'"{escaped}"')
    wanted = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in read)
    assert orjson.loads(with_pairs(f'"{escaped}"'.encode())) == wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab."), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_whatever_python_writes_is_read_or_set_aside_for_its_text(value, is_ascii):
    line = json.dumps({"text": value}, ensure_ascii=is_ascii).encode()
    record = record_of(line, Fields("text"), orjson.loads)
    if isinstance(value, str):
        assert text_of(record, "text").decode() == value
    else:
        with pytest.raises(Unread, match=r"null|not_text"):
            text_of(record, "text")
