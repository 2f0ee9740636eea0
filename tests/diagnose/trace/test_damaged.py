"""Damaged and hostile files: a refusal with its reason, or a sound part and what was left out."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import zlib

import numpy as np
import pytest
import trace_texts as texts

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.diagnose.trace import source
from meshwright.diagnose.trace.columns import Left
from meshwright.diagnose.trace.read import read_trace

HELD = texts.events(40)
TEXT = texts.kineto(HELD)
KERNELS = 41


def traced(folder, text):
    path = folder / "trace.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return read_trace(path)


def whats(trace):
    return [left.what for left in trace.left]


def changed(count, change):
    """The text with every `count`th event changed."""
    held = json.loads(json.dumps(HELD))
    for number in range(0, len(held), count):
        held[number] = change(held[number])
    return texts.kineto(held)


def timed(number):
    """How many events with a duration `changed` changes."""
    return sum(one["ph"] == "X" for one in HELD[::number])


def sound(trace):
    for table in (trace.device, trace.calls, trace.operators):
        assert np.all(table.end_ns >= table.start_ns)
        assert np.all(table.start_ns >= 0)
    return True


@pytest.mark.parametrize("end", [400, 900, 1500, 4000, len(TEXT) // 2, len(TEXT) - 150])
@pytest.mark.parametrize("packed", [False, True])
def test_cut_files_give_what_they_hold(end, packed, tmp_path):
    text = TEXT.encode()[:end]
    text = gzip.compress(TEXT.encode())[: end // 30] if packed else text
    try:
        trace = traced(tmp_path, text)
    except InvalidInput as refused:
        assert len(text) < 1000, "a file with events is read"
        assert refused.findings[0].hint  # noqa: PT017
        return
    assert sound(trace)
    assert trace.left
    assert trace.events > 0


def test_a_cut_within_the_metadata_loses_no_event(tmp_path):
    trace = traced(tmp_path, TEXT[:-40])
    assert len(trace.device) == KERNELS
    assert whats(trace)[0].startswith("metadata after the events")


def test_the_base_of_times_survives_damaged_metadata(tmp_path):
    trace = traced(tmp_path, TEXT[:-1])
    assert trace.meta.base_ns == 1711964646000000000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"grid": [1, ', '"grid": [NaN, '),
        ('occupancy %": 0', 'occupancy %": -Infinity'),
        ('occupancy %": 0', 'occupancy %": inf'),
        ("kernel<", "ker\x01nel\x1f<"),
        ("kernel<", "ker\tnel\n<"),
        ("kernel<", "\\ud800<"),
        ("},\n  {", "}\n  {"),
        ('\n  ],\n  "traceName"', ',\n  ],\n  "traceName"'),
    ],
)
def test_text_that_is_no_json_is_mended_and_told(old, new, tmp_path):
    assert old in TEXT
    trace = traced(tmp_path, TEXT.replace(old, new))
    assert len(trace.device) == KERNELS
    assert trace.bad_events == 0
    assert whats(trace) == ["text that is no JSON"]


def test_bad_utf8_in_names(tmp_path):
    trace = traced(tmp_path, TEXT.encode().replace(b"kernel<", b"k\xff\xfe<"))
    assert len(trace.device) == KERNELS
    assert any("�" in name for name in trace.names)


def test_a_name_keeps_what_looks_like_a_number(tmp_path):
    text = TEXT.replace("kernel<", "f(x: NaN, nan] kernel<").replace("[1, 1, 1]", "[NaN]")
    trace = traced(tmp_path, text)
    assert any(name.startswith("f(x: NaN, nan] kernel<") for name in trace.names)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda e: e | {"dur": -5.0}, "events of negative duration"),
        (lambda e: e | {"dur": float("nan")}, "events without a readable duration"),
        (lambda e: e | {"dur": None}, "events without a readable duration"),
        (lambda e: e | {"dur": "long"}, "events without a readable duration"),
        (lambda e: e | {"dur": 1e300}, "events longer than a month"),
        (
            lambda e: {k: v for k, v in e.items() if k != "dur"},
            "events without a readable duration",
        ),
        (lambda e: {k: v for k, v in e.items() if k != "ts"}, "events without a readable start"),
        (lambda e: e | {"ts": None}, "events without a readable start"),
        (lambda e: e | {"ts": 1e300}, "events without a readable start"),
        (lambda e: e | {"ts": 10**400}, "events without a readable start"),
        (lambda e: e | {"ts": [1]}, "events without a readable start"),
        (lambda e: e | {"ts": "soon"}, "events without a readable start"),
    ],
)
def test_times_that_cannot_be_are_counted_and_left_out(change, what, tmp_path):
    trace = traced(tmp_path, changed(15, lambda e: change(e) if e["ph"] == "X" else e))
    left = {one.what: one for one in trace.left}
    assert left[what].count == timed(15) == trace.bad_events
    assert left[what].time_us == (5.0 * timed(15) if "negative" in what else 0.0)
    assert sound(trace)
    whole = traced(tmp_path, TEXT)
    tables = [len(t.device) + len(t.calls) + len(t.operators) for t in (whole, trace)]
    assert tables[0] - tables[1] in (timed(15), timed(15) - 1)  # a short frame is in no table


def test_exponents_beyond_all_bounds(tmp_path):
    text = TEXT.replace(
        '"ph": "M"', '"ph": "M", "a": 1, "ts": 1e99999999999999999999, "dur": -1e999'
    )
    assert len(traced(tmp_path, text).device) == KERNELS
    text = TEXT.replace('"dur": 12.345', '"dur": 1e99999999999999999999')
    trace = traced(tmp_path, text)
    assert len(trace.device) == 1
    assert whats(trace) == ["events without a readable duration"]


def test_an_event_of_another_age_is_left_out(tmp_path):
    trace = traced(tmp_path, texts.kineto([texts.kernel(1, 0), *HELD]))
    assert whats(trace) == ["events far away"]
    assert trace.device.end_ns.max() < 10**9


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e | {"args": [1, 2]},
        lambda e: e | {"args": "text"},
        lambda e: e | {"args": {"list": [{"ph": "X", "name": "a"}, {"ph": "X", "name": "b"}]}},
        lambda e: e | {"name": 7},
        lambda e: e | {"name": None},
        lambda e: e | {"name": {"a": [1]}},
        lambda e: e | {"pid": [1], "tid": {"a": 1}},
        lambda e: e | {"pid": 2**70, "tid": 1.5},
        lambda e: e | {"args": {"stream": 2**40, "device": -(2**50), "correlation": 2**90}},
        lambda e: e | {"args": {"stream": "7", "correlation": "12", "External id": ""}},
        lambda e: e | {"args": {"Input Dims": "[[1, 2]]", "Input type": 5}},
        lambda e: e | {"args": {"Collective name": 5, "Group size": "eight", "dtype": None}},
        lambda e: e | {"cat": None} if e["ph"] != "X" else e,
    ],
)
def test_values_of_any_type_stand_anywhere(change, tmp_path):
    trace = traced(tmp_path, changed(7, change))
    assert trace.bad_events == 0
    assert len(trace.device) == KERNELS
    assert sound(trace)


@pytest.mark.parametrize("entry", ["null", "5", '"s"', "[1]", "true", '{"ph": 7}', '{"a": 1}'])
def test_entries_that_are_no_events(entry, tmp_path):
    trace = traced(tmp_path, TEXT.replace("},\n  {", "}, " + entry + ",\n  {"))
    assert len(trace.device) == KERNELS
    assert trace.bad_events == len(HELD) - 1
    assert whats(trace) == ["entries that are no events"]


def test_one_damaged_event_costs_no_other(tmp_path):
    text = TEXT.replace('"kernel<20, {x}>", ', '"kernel<20, {x}>", ]]', 1)
    trace = traced(tmp_path, text)
    assert len(trace.device) == KERNELS - 1
    assert trace.bad_events == 1
    assert whats(trace)[0].startswith("damaged events")


@pytest.mark.parametrize("depth", [5, 500, 100_000])
def test_deep_nesting(depth, tmp_path):
    deep = '"args": {"z": ' + "[" * depth + "]" * depth + ", "
    trace = traced(tmp_path, TEXT.replace('"args": {', deep, 2))
    assert len(trace.device) == KERNELS
    assert trace.bad_events == (0 if depth == 5 else trace.bad_events)
    assert sound(trace)


def test_a_huge_name_is_cut(tmp_path):
    trace = traced(tmp_path, TEXT.replace("kernel<3,", "x" * 5_000_000 + "kernel<3,"))
    assert len(trace.device) == KERNELS
    assert max(map(len, trace.names)) == 8192


def test_keys_that_are_doubled(tmp_path):
    text = TEXT.replace('"ph": "X", ', '"ph": "X", "ph": "X", "ts": 1, ')
    assert len(traced(tmp_path, text).device) == KERNELS
    second = TEXT[:-1] + ', "traceEvents": [{"ph": "X"}]}'
    trace = traced(tmp_path, second)
    assert len(trace.device) == KERNELS
    assert whats(trace)[0].startswith("a second list of events")


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[]", '{"traceEvents": [\n  ],\n "a": 1}'])
def test_no_events_are_a_trace(text, tmp_path):
    trace = traced(tmp_path, text)
    assert (trace.events, trace.left) == (0, ())


def test_files_packed_in_parts(tmp_path):
    text = TEXT.encode()
    parts = gzip.compress(text[:2000]) + gzip.compress(text[2000:]) + bytes(512)
    trace = traced(tmp_path, parts)
    assert (len(trace.device), trace.left) == (KERNELS, ())
    twice = traced(tmp_path, gzip.compress(text) * 2)
    assert len(twice.device) == KERNELS
    assert whats(twice)[0].startswith("text after the trace")
    behind = traced(tmp_path, gzip.compress(text) + b"what")
    assert (len(behind.device), whats(behind)) == (KERNELS, ["end of the file"])


def test_damaged_compression_keeps_what_came_before(tmp_path):
    raw = bytearray(gzip.compress(TEXT.encode()))
    raw[len(raw) // 2] ^= 0xFF
    try:
        trace = traced(tmp_path, bytes(raw))
    except InvalidInput:
        pytest.fail("events before the damage are read")
    assert sound(trace)
    assert trace.left


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (b"hello", "it is not JSON"),
        (b"<html></html>", "it is not JSON"),
        (b"42", "it is not JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "pointer of Git LFS"),
        (b'{"a": 1}', "it has no traceEvents"),
        (b'{"a": ', "cut off before its events"),
        (b'{"traceEvents": {}}', "are no list"),
        (b'{"traceEvents": null}', "are no list"),
        (b'{"traceEvents": ', "it ends before its events"),
        (b"[[[[", "has no events"),
        (b"[" * 3_000_000, "has no events"),
        (b'{"a":' * 300_000, "not JSON"),
        (b"[1, 2, 3]", "none of its events"),
        (pickle.dumps({"a": 1}), "it is a pickle"),
        (gzip.compress(pickle.dumps({"a": 1}), mtime=0), "it is a pickle"),
        (b"PK\x03\x04" + bytes(30), "it is a zip archive"),
        (b"\x28\xb5\x2f\xfd" + bytes(30), "it is a zstandard file"),
        (bytes(257) + b"ustar" + bytes(250), "it is a tar archive"),
        ("[]".encode("utf-16"), "it is a UTF-16 text"),
        (b"SQLite format 3\x00", "it is a SQLite database"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_reason(raw, reason, tmp_path):
    with pytest.raises(InvalidInput, match=re.escape(reason)) as refused:
        traced(tmp_path, raw)
    (finding,) = refused.value.findings
    assert finding.file.endswith("trace.json")
    assert finding.hint


def test_paths_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for path, reason in (
        (tmp_path, "it is a folder"),
        (tmp_path / "pipe.json", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (tmp_path / "loop.json", "too many levels"),
        (tmp_path / "none.json", "no such file"),
        ("a\0b", "null"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            read_trace(path)


def test_a_bomb_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "RATIO_FROM_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * 20_000_000))
    with pytest.raises(InvalidInput, match="200 times its size"):
        read_trace(path)


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_inflating_gives_the_text_whatever_the_pieces(count, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "PIECE_BYTES", count)
    text = bytes(range(1, 256)) * 300 + b"a" * 5000
    path = tmp_path / "text.gz"
    path.write_bytes(zlib.compress(text, wbits=31))
    told: list[Left] = []
    assert b"".join(source.text_pieces(path, told=told)) == text
    assert told == []


def test_every_refusal_is_of_the_package(tmp_path):
    for at in range(0, len(TEXT), 997):
        for new in ("\0", '"', "{", "]", "\\", "}}", "NaN"):
            try:
                assert sound(traced(tmp_path, TEXT[:at] + new + TEXT[at + 1 :]))
            except MeshwrightError:
                continue
