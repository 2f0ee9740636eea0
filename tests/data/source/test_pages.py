from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.data.source.compact import structure
from meshwright.data.source.footer import groups_of
from meshwright.data.source.pages import ROWS_BYTES, Bounds, rows_at_once

WIDE = Bounds(page_bytes=1 << 30, kept_bytes=None)


def column_of(values, **options):
    file = io.BytesIO()
    pq.write_table(pa.table({"text": values}), file, **options)
    return file, groups_of(file, "x")[0].chunks[0]


def rows(values, *, bounds: Bounds = WIDE, most: int = 8192, **options) -> int:
    file, facts = column_of(values, **options)
    return rows_at_once(file, "x", facts, most_rows=most, bounds=bounds)


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "brotli", "lz4"])
def test_plain_columns_are_read_as_many_rows_at_once_as_wanted(codec):
    values = [f"text {i}" for i in range(5000)]
    assert rows(values, compression=codec, use_dictionary=False, data_page_size=1000) == 8192
    assert rows(values, compression=codec) == (8192 if codec != "lz4" else 1024)


def test_a_long_value_of_a_dictionary_counts_once_for_every_row():
    values = ["x" * (1 << 20)] + ["short"] * 5000
    found = rows(values, compression="zstd", dictionary_pagesize_limit=1 << 30)
    assert ROWS_BYTES // 4 <= found << 20 <= ROWS_BYTES


def test_large_pages_make_for_few_rows():
    values = ["x" * (1 << 20)] * 80
    plain = {
        "compression": "zstd",
        "use_dictionary": False,
        "data_page_size": 1,
        "write_batch_size": 1,
    }
    assert ROWS_BYTES // 4 <= rows(values, **plain) << 20 <= ROWS_BYTES
    huge = rows(values, compression="zstd", use_dictionary=False, data_page_size=1 << 30)
    assert huge == 1
    delta = rows(
        values, compression="zstd", use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY"
    )
    assert delta <= 64


def test_pages_and_kept_dictionaries_over_the_bounds_are_refused():
    values = ["x" * 1000] * 100
    plain = {"compression": "zstd", "use_dictionary": False}
    with pytest.raises(InvalidInput, match=r"a page of 100,4\d\d bytes, more than 100,000"):
        rows(values, bounds=Bounds(page_bytes=100_000, kept_bytes=None), **plain)
    with pytest.raises(InvalidInput, match="a dictionary column of"):
        rows(values, bounds=Bounds(page_bytes=1 << 30, kept_bytes=100_000), **plain)


@given(st.integers(0, 60), st.integers(0, 255))
def test_a_damaged_header_is_an_error_of_ours_or_a_number_of_rows(at, byte):
    file, facts = column_of(["a", "b", "a"] * 50, compression="zstd", data_page_size=10)
    content = bytearray(file.getvalue())
    content[4 + at] = byte
    try:
        found = rows_at_once(
            io.BytesIO(content), "x", facts, most_rows=64, bounds=Bounds(1 << 20, None)
        )
    except InvalidInput:
        found = 1
    assert 1 <= found <= 64


@given(st.binary(max_size=60))
def test_any_bytes_are_a_structure_or_none(data):
    try:
        fields, end = structure(data)
    except (IndexError, ValueError):
        return
    assert 0 < end <= len(data)
    assert all(isinstance(number, int) for number in fields)


def test_a_structure_is_read_with_what_it_holds():
    # 1: i32 = 5, 2: binary "ab", 5: struct {1: i64 = -1, 2: true}, 6: list of i32 [1, 2]
    data = bytes([0x15, 10, 0x18, 2, 97, 98, 0x3C, 0x16, 1, 0x11, 0, 0x19, 0x25, 2, 4, 0, 9])
    assert structure(data) == ({1: 5, 2: b"ab", 5: {1: -1}, 6: [1, 2]}, len(data) - 1)
