"""The footer of a parquet file: its row groups and where their columns lie.

The library reads it too, but asking it (pyarrow 26.0.1) for the metadata of a column whose footer
contradicts itself ends the process; asking for its rows does not.

Format: parquet-format 2.11, parquet.thrift (FileMetaData).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from meshwright.data.source.compact import structure
from meshwright.data.source.damage import damaged
from meshwright.data.source.opening import read_at

if TYPE_CHECKING:
    from meshwright.data.source.compact import Fields, Value

MAGIC = b"PAR1"
_END_BYTES = 8  # length of the footer and magic
_MOST_BYTES = 16 << 20  # some thousand row groups take less
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_BYTE_ARRAY = 6


class Chunk(NamedTuple):
    """A column of a row group."""

    name: str  # dotted path
    is_bytes: bool  # of any length, as strings are
    codec: str
    values: int
    start: int  # of its first page
    stored: int


class Group(NamedTuple):
    """A row group."""

    rows: int
    bytes: int  # uncompressed
    chunks: tuple[Chunk, ...]


def groups_of(file: BinaryIO, path: str) -> tuple[Group, ...]:
    """The row groups of a file; InvalidInput where its footer cannot be read."""
    try:
        size = file.seek(0, 2)
    except OSError as error:
        raise damaged(path, f"cannot be read: {error}") from None
    end = read_at(file, path, at=max(0, size - _END_BYTES), count=_END_BYTES)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length > size - _END_BYTES - len(MAGIC):
        raise damaged(path, "cannot be read as parquet: cut short, its footer is not there")
    if length > _MOST_BYTES:
        raise damaged(path, f"has a footer of {length:,} bytes, more than {_MOST_BYTES:,}")
    try:
        return _parsed(read_at(file, path, at=size - _END_BYTES - length, count=length))
    except (IndexError, ValueError) as error:
        raise damaged(path, f"cannot be read as parquet: damaged footer: {error}") from None


@lru_cache(maxsize=4)
def _parsed(footer: bytes) -> tuple[Group, ...]:
    """The row groups of a footer; units of one file that follow each other read it once."""
    fields, _ = structure(footer)
    return tuple(_group(_fields(group)) for group in _items(fields.get(4)))


def _group(fields: Fields) -> Group:
    chunks = tuple(_chunk(_fields(column)) for column in _items(fields.get(1)))
    return Group(_count(fields.get(3)), _count(fields.get(2)), chunks)


def _chunk(fields: Fields) -> Chunk:
    if 1 in fields:
        raise ValueError("a column in another file")
    known = _fields(fields.get(3))
    names = [part for part in _items(known.get(3)) if isinstance(part, bytes)]
    codec = _count(known.get(4))
    start, dictionary = _count(known.get(9)), known.get(11, 0)
    if isinstance(dictionary, int) and 0 < dictionary < start:
        start = dictionary
    return Chunk(
        name=b".".join(names).decode(errors="replace"),
        is_bytes=known.get(1) == _BYTE_ARRAY,
        codec=_CODECS[codec] if codec < len(_CODECS) else "",
        values=_count(known.get(5)),
        start=start,
        stored=_count(known.get(7)),
    )


def _fields(value: Value | None) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("a structure is missing")
    return value


def _items(value: Value | None) -> list[Value]:
    return value if isinstance(value, list) else []


def _count(value: Value | None) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("a number is missing or negative")
    return value
