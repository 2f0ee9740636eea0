"""Documents from parquet: only the columns of the text and the name, a few rows at a time.

How many is decided by the pages of the columns (see `pages`), so that no file, however it was made,
takes more than a few hundred MiB. Invalid UTF-8 is set aside, as in jsonl.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from meshwright.data.documents import BATCH_BYTES
from meshwright.data.needs import need
from meshwright.data.source.columns import check_columns, is_dictionary, values_of
from meshwright.data.source.damage import damaged
from meshwright.data.source.footer import groups_of
from meshwright.data.source.jsonl import LONGEST_ID
from meshwright.data.source.opening import FREE_BYTES, reading
from meshwright.data.source.pages import Bounds, rows_at_once
from meshwright.data.source.rejects import EXCERPT_BYTES
from meshwright.data.source.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from meshwright.base.errors import InvalidInput
    from meshwright.data.settings import Limits
    from meshwright.data.source.footer import Group
    from meshwright.data.source.jsonl import Fields
    from meshwright.data.source.unit import Input

_PAGE_BYTES = 256 << 20  # pages up to here are read, or up to four times limits.document_bytes
_MOST_ROWS = 8192  # decoded at once
_BUFFER_BYTES = 1 << 20  # read at once: without it, whole columns of a row group are


class _File(NamedTuple):
    """An open file: as the library reads it, and its bytes."""

    parquet: Any
    bytes: BinaryIO
    path: str
    groups: tuple[Group, ...]


def group_bytes(path: str) -> tuple[int, ...]:
    """Bytes of each row group, uncompressed, all columns together."""
    with reading(path) as file:
        return tuple(group.bytes for group in groups_of(file, path))


def parquet_rows(
    source: Input,
    groups: Sequence[int],
    *,
    fields: Fields,
    limits: Limits,
    reject: Callable[[int, str, bytes], None],
) -> Generator[Rows, None, int]:
    """The documents of row groups, numbered from the first row of the first; returns the rows.

    Raises InvalidInput where the file is damaged, lacks a column or has another type there.
    """
    names = [name for name in (fields.text, fields.id) if name]
    most = max(FREE_BYTES, int(limits.expansion * source.bytes))
    row = given = 0
    with _opened(source.path, source.stamp) as file:
        check_columns(file.parquet.schema_arrow, fields, source.path)
        for batch in _batches(file, groups, names=names, limits=limits):
            with _told(source.path, row):
                texts = values_of(batch, fields.text)
                ids = [_name(value) for value in values_of(batch, fields.id)] if fields.id else ()
            reasons = _refusals(texts, limits.document_bytes)
            for rows in _portions(texts, ids, reasons=reasons, first=row + 1):
                given += sum(map(len, rows.texts))
                if given > most:
                    raise _bomb(source.path, most)
                yield rows
            _tell(texts, reasons, first=row + 1, reject=reject)
            row += len(texts)
    return row


def parquet_records(path: str, limits: Limits) -> Iterator[dict[str, Any]]:
    """Every row with all its columns, for small files."""
    with _opened(path) as file:
        names = [field.name for field in file.parquet.schema_arrow]
        for batch in _batches(file, range(len(file.groups)), names=names, limits=limits):
            with _told(path):
                records = batch.to_pylist()
            yield from records


def _bomb(path: str, most: int) -> InvalidInput:
    return damaged(
        path,
        f"its rows hold more than {most:,} bytes of text: it may be a bomb",
        hint="raise limits.expansion if the file is sound, or leave it out",
    )


@contextlib.contextmanager
def _opened(path: str, stamp: str = "") -> Iterator[_File]:
    """The file, opened; InvalidInput where that fails."""
    parquet = need("pyarrow.parquet", "reading parquet")
    with reading(path, stamp) as file:
        groups = groups_of(file, path)
        file.seek(0)
        with _told(path):
            opened = parquet.ParquetFile(
                file, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
            )
        with opened:
            yield _File(opened, file, path, groups)


@contextlib.contextmanager
def _told(path: str, row: int = 0) -> Iterator[None]:
    """Tells errors of the library as findings."""
    errors = need("pyarrow", "reading parquet").ArrowException
    try:
        yield
    except (errors, OSError, ValueError, LookupError, OverflowError, MemoryError) as error:
        reason = str(error).split("\n", 1)[0] or type(error).__name__
        place = f" after row {row:,}" if row else ""
        raise damaged(path, f"cannot be read as parquet{place}: {reason}") from None


def _batches(
    file: _File, groups: Sequence[int], *, names: Sequence[str], limits: Limits
) -> Iterator[Any]:
    """The wanted columns, as many rows at a time as their pages allow."""
    path, there = file.path, len(file.groups)
    row = 0
    for group in groups:
        if group >= there:
            raise damaged(path, f"has {there} row groups, fewer than before")
        with _told(path, row):
            rows = _rows_at_once(file, group, names=names, limits=limits)
            batches = file.parquet.iter_batches(
                rows, row_groups=[group], columns=list(names), use_threads=False
            )
        while True:
            with _told(path, row):
                batch = next(batches, None)
            if batch is None:
                break
            row += len(batch)
            yield batch


def _rows_at_once(file: _File, group: int, *, names: Sequence[str], limits: Limits) -> int:
    """How many rows of a group to read at once."""
    facts = file.groups[group]
    mean = max(1, facts.bytes) / max(1, facts.rows)
    rows = max(1, min(_MOST_ROWS, int(BATCH_BYTES / mean)))
    largest = max(_PAGE_BYTES, 4 * limits.document_bytes)
    for column in facts.chunks:
        name = column.name
        if any(name == wanted or name.startswith(f"{wanted}.") for wanted in names):
            kept = is_dictionary(file.parquet.schema_arrow, name)
            bounds = Bounds(page_bytes=largest, kept_bytes=largest if kept else None)
            rows = rows_at_once(file.bytes, file.path, column, most_rows=rows, bounds=bounds)
    return rows


def _refusals(values: Sequence[bytes | None], longest_bytes: int) -> list[str]:
    """For each value the reason of REJECTS why it is no document, "" where it is one."""
    reasons = [
        "null" if value is None else "too_long" if len(value) > longest_bytes else ""
        for value in values
    ]
    both = list(zip(values, reasons, strict=True))
    if _is_utf8(b"\n".join(value for value, reason in both if value and not reason)):
        return reasons
    return [reason or ("" if _is_utf8(value or b"") else "encoding") for value, reason in both]


def _tell(
    values: Sequence[bytes | None],
    reasons: Sequence[str],
    *,
    first: int,
    reject: Callable[[int, str, bytes], None],
) -> None:
    """Sets aside the rows that are no documents."""
    for number, reason in enumerate(reasons, first):
        if reason:
            reject(number, reason, (values[number - first] or b"")[:EXCERPT_BYTES])


def _is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or text.decode() is not None
    except UnicodeDecodeError:
        return False


def _portions(
    texts: Sequence[Any], ids: Sequence[str], *, reasons: Sequence[str], first: int
) -> Iterator[Rows]:
    """The rows that are documents, about BATCH_BYTES at a time."""
    if not any(reasons) and sum(map(len, texts)) < 2 * BATCH_BYTES:
        yield Rows(texts, range(first, first + len(texts)), ids)
        return
    start, size = 0, 0
    for i, (text, reason) in enumerate(zip(texts, reasons, strict=True)):
        size += 0 if reason else len(text)
        if size >= BATCH_BYTES or i == len(texts) - 1:
            chosen = [j for j in range(start, i + 1) if not reasons[j]]
            names = [ids[j] for j in chosen] if ids else ()
            yield Rows([texts[j] for j in chosen], [first + j for j in chosen], names)
            start, size = i + 1, 0


def _name(value: Any) -> str:
    if isinstance(value, bytes):
        return value[: 4 * LONGEST_ID].decode(errors="replace")[:LONGEST_ID]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""
