from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.data.source.footer import groups_of

TABLE = pa.table({"text": ["a", "b", "c"] * 40, "n": range(120), "m": [{"body": "x"}] * 120})


def stored(**options) -> bytes:
    file = io.BytesIO()
    pq.write_table(TABLE, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 50}])
def test_it_says_what_the_library_says(codec, options):
    content = stored(compression=codec, **options)
    facts = pq.ParquetFile(io.BytesIO(content)).metadata
    groups = groups_of(io.BytesIO(content), "x")
    assert len(groups) == facts.num_row_groups
    for i, group in enumerate(groups):
        wanted = facts.row_group(i)
        assert (group.rows, group.bytes) == (wanted.num_rows, wanted.total_byte_size)
        for j, chunk in enumerate(group.chunks):
            column = wanted.column(j)
            assert chunk.name == column.path_in_schema
            assert chunk.is_bytes == (column.physical_type == "BYTE_ARRAY")
            assert chunk.codec.removesuffix("_RAW") == column.compression
            assert chunk.values == column.num_values
            assert chunk.stored == column.total_compressed_size
            assert chunk.start == (column.dictionary_page_offset or column.data_page_offset)


@given(st.data())
def test_a_damaged_footer_is_read_or_an_error_of_ours(data):
    content = bytearray(stored())
    size = int.from_bytes(content[-8:-4], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(len(content) - 8 - size, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    try:
        groups = groups_of(io.BytesIO(content), "x")
    except InvalidInput as error:
        groups = ()
        told = str(error)
        assert told.startswith("x: ")
    assert all(chunk.start >= 0 and chunk.stored >= 0 for g in groups for chunk in g.chunks)


def test_a_footer_that_is_not_there_or_too_long_is_told():
    for content in (b"", b"PAR1", b"PAR1\xff\xff\0\0PAR1", stored()[:-1], b"PAR1" + b"\0" * 20):
        with pytest.raises(InvalidInput, match="footer is not there"):
            groups_of(io.BytesIO(content), "x")
