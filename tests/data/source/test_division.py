from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.data.settings import Limits, Source
from meshwright.data.source.division import lines_before, plan_units
from meshwright.data.source.unit import Input, Span, Unit


def file(size: int, *, source: int = 0, format: str = "jsonl", compression: str = "") -> Input:
    return Input(
        path="x", source=source, format=format, compression=compression, bytes=size, stamp=""
    )


def spans(inputs, unit_bytes: int = 100) -> list[list[tuple[int, int, int]]]:
    units = plan_units(inputs, unit_bytes=unit_bytes)
    assert [unit.number for unit in units] == list(range(len(units)))
    return [[(s.input, s.start, s.stop) for s in unit.spans] for unit in units]


def test_plain_lines_are_cut_and_small_files_share_units():
    assert spans([file(250), file(20), file(30), file(100)]) == [
        [(0, 0, 100)],
        [(0, 100, 200)],
        [(0, 200, 250), (1, 0, 20), (2, 0, 30)],
        [(3, 0, 100)],
    ]


def test_whole_texts_and_compressed_files_are_never_cut():
    assert spans([file(500, format="text"), file(500, compression="gz"), file(500)])[:2] == [
        [(0, 0, 1)],
        [(1, 0, 1)],
    ]
    assert spans([file(12, compression="zst"), file(13, compression="gz"), file(1)]) == [
        [(0, 0, 1), (1, 0, 1)],
        [(2, 0, 1)],
    ]


def test_a_unit_is_of_one_source_and_empty_files_are_of_none():
    assert spans([file(10), file(0), file(10, source=1)]) == [[(0, 0, 10)], [(2, 0, 10)]]
    assert spans([]) == []


def test_a_unit_holds_no_more_than_some_thousand_files():
    assert [len(unit) for unit in spans([file(1)] * 5000, 1 << 20)] == [4096, 904]


@given(st.lists(st.integers(0, 350), max_size=12), st.integers(1, 120))
def test_every_byte_is_in_one_span_in_order_and_no_input_twice_in_a_unit(sizes, unit_bytes):
    units = plan_units([file(size) for size in sizes], unit_bytes=unit_bytes)
    seen = [0] * len(sizes)
    for unit in units:
        assert unit.bytes == sum(span.stop - span.start for span in unit.spans) <= unit_bytes
        assert len({span.input for span in unit.spans}) == len(unit.spans)
        for span in unit.spans:
            assert span.start == seen[span.input] < span.stop
            seen[span.input] = span.stop
    assert seen == sizes


def test_lines_before_a_span_are_those_of_the_earlier_spans():
    units = [
        Unit(number=0, spans=(Span(0, 0, 9),), bytes=9),
        Unit(number=1, spans=(Span(0, 9, 12), Span(1, 0, 5)), bytes=8),
        Unit(number=2, spans=(Span(1, 5, 9),), bytes=4),
    ]
    assert lines_before(units, [[3], [2, 7], [1]]) == ({0: 0}, {0: 3, 1: 0}, {1: 7})


LINES = st.lists(
    st.sampled_from(
        [
            b'{"text":"short","id":1}',
            json.dumps({"text": "caf\u00e9 \U0001f600", "id": "x"}).encode(),
            b'{"text":"' + b"long " * 20 + b'"}\r',
            b"",
            b" \t",
            b'{"text":"bad',
            b'{"text":"\xff"}',
            b"\xef\xbb\xbf" + b'{"text":"bom"}',
            b"{}",
        ]
    ),
    max_size=12,
)


@given(lines=LINES, unit_bytes=st.integers(1, 120), ends=st.booleans())
@settings(max_examples=60)
def test_any_division_gives_the_same_documents_with_their_true_lines(
    read_inputs, tmp_path_factory, lines, unit_bytes, ends
):
    content = b"\n".join(lines) + b"\n" * ends
    path = tmp_path_factory.mktemp("division") / "x.jsonl"
    path.write_bytes(content)
    found = Input(
        path=str(path), source=0, format="jsonl", compression="", bytes=len(content), stamp=""
    )
    sources = (Source(files=("x",), id_field="id"),)
    whole = read_inputs((found,), sources, limits=Limits(document_bytes=80))
    divided = read_inputs(
        (found,), sources, limits=Limits(document_bytes=80), unit_bytes=unit_bytes
    )
    assert divided[:4] == whole[:4]
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    assert sorted(n for _, n, *_ in whole.documents + whole.rejected) == numbers
