"""The pages of a parquet column, by their headers: how many rows can be read at once.

The library decodes whole pages and gives every row a copy of its value, so a few hundred stored
bytes may become terabytes: by pages that decompress to gigabytes, by rows that share one long
value of the dictionary, or by values that repeat a long prefix. The footer need not tell the truth
of any of these; the headers of the pages are what the library itself goes by.

Format: parquet-format 2.11, parquet.thrift (PageHeader).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from meshwright.data.needs import need
from meshwright.data.source.compact import structure
from meshwright.data.source.damage import damaged
from meshwright.data.source.opening import is_url, read_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.base.errors import InvalidInput
    from meshwright.data.source.compact import Fields
    from meshwright.data.source.footer import Chunk

ROWS_BYTES = 64 << 20  # of the pages and values behind the rows that are read at once
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_DETAILS = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}  # numbers: details, encoding
_DELTA_BYTE_ARRAY = 7  # values are a prefix of the one before and a suffix of their own
_HEADER_BYTES = (256, 1 << 20)  # tried in turn
_CODECS = ("SNAPPY", "GZIP", "BROTLI", "ZSTD")


class Page(NamedTuple):
    """A page as its header describes it; `at` is where its content starts in the file."""

    kind: int
    bytes: int  # decompressed
    stored: int
    values: int
    encoding: int
    at: int


class Bounds(NamedTuple):
    """What a column may take: each page of it, and all its pages where values are kept."""

    page_bytes: int
    kept_bytes: int | None


def rows_at_once(
    file: BinaryIO, path: str, column: Chunk, *, most_rows: int, bounds: Bounds
) -> int:
    """Up to `most_rows`, less where that many could take more than ROWS_BYTES, but at least 1.

    Raises InvalidInput where it is beyond the bounds, or where the header of a page cannot be read.
    Of a file on a server only the first page is looked at, for all of it would have to be fetched.
    """
    if not column.is_bytes:
        return most_rows
    pages, kept = [], 0
    for page in _pages(file, path, column):
        kept += page.bytes
        if page.bytes > bounds.page_bytes:
            raise _too_large(path, "a page", found=page.bytes, most=bounds.page_bytes)
        if bounds.kept_bytes is not None and kept > bounds.kept_bytes:
            raise _too_large(path, "a dictionary column", found=kept, most=bounds.kept_bytes)
        pages.append(page)
    longest = _longest_repeated(file, path, pages=pages, compression=column.codec)
    data = [page for page in pages if page.kind != _DICTIONARY]
    ends = np.cumsum([page.values for page in data])
    sizes = np.cumsum([0, *(page.bytes for page in data)])
    rows = most_rows
    while rows > 1 and rows * longest + _most_touched(ends, sizes, rows) > ROWS_BYTES:
        rows //= 2
    return rows


def _most_touched(ends: Any, sizes: Any, rows: int) -> int:
    """The most bytes of pages that one of consecutive groups of rows lies in."""
    if not len(ends) or not ends[-1]:
        return int(sizes[-1])
    starts = np.arange(0, ends[-1], rows)
    first = np.searchsorted(ends, starts, side="right")
    last = np.searchsorted(ends, np.minimum(starts + rows, ends[-1]) - 1, side="right")
    return int((sizes[last + 1] - sizes[first]).max())


def _longest_repeated(file: BinaryIO, path: str, *, pages: list[Page], compression: str) -> int:
    """A bound on the bytes of a value that is stored once and may stand in many rows."""
    longest = max((page.bytes for page in pages if page.encoding == _DELTA_BYTE_ARRAY), default=0)
    for page in pages:
        if page.kind == _DICTIONARY:
            longest = max(longest, _longest_entry(file, path, page=page, compression=compression))
    return longest


def _longest_entry(file: BinaryIO, path: str, *, page: Page, compression: str) -> int:
    """The bytes of a dictionary's longest value; of all of it where that cannot be told."""
    stored = read_at(file, path, at=page.at, count=page.stored)
    pyarrow = need("pyarrow", "reading parquet")
    if compression in _CODECS:
        try:
            data = pyarrow.decompress(
                stored, decompressed_size=page.bytes, codec=compression.lower(), asbytes=True
            )
        except (pyarrow.ArrowException, OSError, ValueError):
            return page.bytes  # for the library to tell what is wrong
    elif compression == "UNCOMPRESSED":
        data = stored
    else:
        return page.bytes
    at = longest = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return min(longest, page.bytes)


def _pages(file: BinaryIO, path: str, column: Chunk) -> Iterator[Page]:
    """The pages of a column chunk in their order."""
    at, values = column.start, 0
    while at < column.start + column.stored and values < column.values:
        page = _page(file, path, at)
        yield page
        if is_url(path):
            return
        values += page.values if page.kind != _DICTIONARY else 0
        at = page.at + page.stored


def _page(file: BinaryIO, path: str, at: int) -> Page:
    """The page whose header starts at a place of the file."""
    for size in _HEADER_BYTES:
        head = read_at(file, path, at=at, count=size)
        try:
            return _described(*structure(head), at)
        except IndexError:
            if len(head) < size:
                break
        except ValueError:
            break
    raise damaged(path, f"cannot be read as parquet: no header of a page at byte {at:,}")


def _described(fields: Fields, length: int, at: int) -> Page:
    """A page from the fields of its header; ValueError where they make none."""
    kind, size, stored = fields.get(1), fields.get(2), fields.get(3)
    if not (isinstance(kind, int) and isinstance(size, int) and isinstance(stored, int)):
        raise ValueError("not a header of a page")
    if size < 0 or stored < 0:
        raise ValueError("a negative size")
    place, encoded_at = _DETAILS.get(kind, (0, 0))
    details = fields.get(place)
    known = details if isinstance(details, dict) else {}
    values, encoding = known.get(1, 0), known.get(encoded_at, 0)
    if not (isinstance(values, int) and isinstance(encoding, int) and values >= 0):
        raise ValueError("not a header of a page")
    return Page(kind, size, stored, values, encoding, at + length)


def _too_large(path: str, what: str, *, found: int, most: int) -> InvalidInput:
    return damaged(
        path,
        f"has {what} of {found:,} bytes, more than {most:,}: it may be a bomb",
        hint=f"if the file is sound, set limits.document_bytes to {found // 4 + 1}",
    )
