from __future__ import annotations

import io
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.settings import Limits, Source
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.records import records_of

TEXTS = [f"text {i} \u00e9 " * (i % 7 + 1) for i in range(1000)]
MIB = 1 << 20


def stored(table, **options) -> bytes:
    file = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), file, **options)
    return file.getvalue()


OPTIONS = [
    {},
    {"row_group_size": 70, "compression": "zstd"},
    {"use_dictionary": False, "compression": "none", "data_page_size": 500},
    {"compression": "gzip", "data_page_version": "2.0", "row_group_size": 333},
    {"compression": "lz4", "write_page_checksum": True, "data_page_size": 999},
    {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    {
        "use_dictionary": False,
        "column_encoding": "DELTA_LENGTH_BYTE_ARRAY",
        "compression": "brotli",
    },
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("unit_bytes", [1, 5000, 16 << 20])
def test_however_it_is_written_and_divided_the_rows_are_the_same(read, options, unit_bytes):
    found = read("x.parquet", stored({"text": TEXTS}, **options), unit_bytes=unit_bytes)
    assert found.documents == [(0, i, text) for i, text in enumerate(TEXTS, 1)]
    if unit_bytes == 1:
        assert found.units == -(-1000 // options.get("row_group_size", 1000))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
)
def test_any_type_of_text_will_do_with_nulls_set_aside(read, kind):
    column = pa.array([*TEXTS[:3], None, *TEXTS[3:9]], pa.string()).cast(kind)
    found = read("x.parquet", stored({"text": column, "id": pa.array(range(10))}), id_field="id")
    assert found.texts == TEXTS[:9]
    assert found.ids == ["0", "1", "2", "4", "5", "6", "7", "8", "9"]
    assert found.rejected == [(0, 4, "null")]


def test_columns_inside_structures_are_named_by_dotted_paths(read):
    rows = [
        {"body": {"text": "a"}, "id": "x"},
        {"body": None, "id": "y"},
        None,
        {"body": {"text": "b"}, "id": None},
    ]
    content = stored({"doc": rows, "doc.flat": ["1", "2", "3", "4"]})
    found = read("x.parquet", content, text_field="doc.body.text", id_field="doc.id")
    assert found.texts == ["a", "b"]
    assert found.ids == ["x", ""]
    assert [line for _, line, _ in found.rejected] == [2, 3]
    assert read("y.parquet", content, text_field="doc.flat").texts == ["1", "2", "3", "4"]


def test_rows_that_are_not_utf8_or_too_long_are_set_aside(read):
    column = pa.array([b"good", b"\xff", b"x" * 101, b"ok \xc3\xa9", b"\xed\xa0\x80"], pa.binary())
    found = read("x.parquet", stored({"text": column}), limits=Limits(document_bytes=100))
    assert found.texts == ["good", "ok \u00e9"]
    assert found.rejected == [(0, 2, "encoding"), (0, 3, "too_long"), (0, 5, "encoding")]


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        (
            {"text_field": "txt"},
            "no column txt for the text; its columns are text .string., n .int64.",
            "did you mean text",
        ),
        ({"text_field": "n"}, "column n is int64, not text", "text_field"),
        ({"text_field": "text.more"}, "no column text.more", "text"),
        ({"id_field": "idd"}, "no column idd for the names", "id_field"),
        ({"id_field": "tags"}, "column tags is list", "id_field"),
    ],
)
def test_a_column_that_is_not_there_is_told_with_those_that_are(read, settings, message, hint):
    content = stored({"text": ["a"], "n": [1], "tags": [["x"]]})
    with pytest.raises(InvalidInput, match=message) as caught:
        read("x.parquet", content, **settings)
    assert hint in caught.value.findings[0].hint


@pytest.mark.parametrize("options", OPTIONS[:4])
def test_a_file_cut_short_anywhere_is_told(read, options):
    content = stored({"text": TEXTS[:50]}, **options)
    for size in [*range(1, 60), *range(60, len(content), 97), len(content) - 1]:
        with pytest.raises(InvalidInput, match=r"x\.parquet"):
            read("x.parquet", content[:size])


def test_a_page_that_lost_a_bit_is_told_by_its_checksum(read):
    content = bytearray(stored({"text": TEXTS}, compression="none", write_page_checksum=True))
    content[content.index(TEXTS[500].encode())] ^= 1
    with pytest.raises(InvalidInput, match=r"cannot be read as parquet.*(?i:crc|checksum)"):
        read("x.parquet", bytes(content))


def bomb(kind: str) -> bytes:
    if kind == "dictionary":
        value = pa.DictionaryArray.from_arrays(
            pa.array([0] * 4000, pa.int32()), pa.array(["x" * MIB])
        )
        table = pa.table({"text": value})
        return stored(table, compression="zstd", dictionary_pagesize_limit=1 << 30)
    values = ["x" * MIB + "y" * i for i in range(64)]
    return stored(
        {"text": values},
        compression="zstd",
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY",
    )


@pytest.mark.parametrize("kind", ["dictionary", "delta"])
def test_a_value_that_many_rows_share_does_not_fill_the_memory(read, monkeypatch, kind):
    monkeypatch.setattr("meshwright.data.source.parquet.FREE_BYTES", 32 * MIB)
    content = bomb(kind)
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="bomb"):
        read("x.parquet", content, limits=Limits(expansion=10))
    assert tracemalloc.get_traced_memory()[1] < 160 * MIB
    tracemalloc.stop()
    assert pool.bytes_allocated() - before < MIB


def test_a_page_of_gigabytes_is_refused_before_it_is_expanded(read, monkeypatch):
    monkeypatch.setattr("meshwright.data.source.parquet._PAGE_BYTES", 8 * MIB)
    values = ["x" * MIB] * 20
    content = stored(
        {"text": values}, compression="zstd", use_dictionary=False, data_page_size=1 << 30
    )
    with pytest.raises(InvalidInput, match=r"a page of 20,\d+,\d+ bytes, more than 8,388,608"):
        read("x.parquet", content, limits=Limits(document_bytes=2 * MIB))


def test_rows_of_several_columns_are_records(tmp_path):
    table = pa.table({"question": ["a", "b"], "choices": [["x"], []], "n": [1, None]})
    pq.write_table(table, tmp_path / "x.parquet")
    (found,) = list_inputs((Source(files=(str(tmp_path / "x.parquet"),)),))
    assert list(records_of(found, Limits())) == table.to_pylist()


def test_a_file_without_rows_has_no_documents(read):
    content = stored(pa.table({"text": pa.array([], pa.string())}))
    assert read("x.parquet", content).documents == []
