"""Documents from parquet: only the columns of the text and the name, a few rows at a time.

Text columns are read as dictionaries: a value that a million rows share is held once, and rows are
given out a few MiB at a time whatever they add up to. Invalid UTF-8 is set aside, as in jsonl.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.names import nearest, question
from meshwright.data.documents import BATCH_BYTES
from meshwright.data.needs import need
from meshwright.data.source.damage import damaged
from meshwright.data.source.jsonl import LONGEST_ID
from meshwright.data.source.opening import FREE_BYTES, reading
from meshwright.data.source.rejects import EXCERPT_BYTES
from meshwright.data.source.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from meshwright.data.settings import Limits
    from meshwright.data.source.jsonl import Fields
    from meshwright.data.source.unit import Input

MAGIC = b"PAR1"
_MOST_ROWS = 8192  # decoded at once
_BUFFER_BYTES = 1 << 20  # read at once: without it, whole columns of a row group are
_SHOWN_COLUMNS = 12


def group_bytes(path: str) -> tuple[int, ...]:
    """Bytes of each row group, uncompressed, all columns together."""
    with _parquet(path) as file:
        groups = file.metadata.num_row_groups
        with _told(path):
            return tuple(max(0, file.metadata.row_group(i).total_byte_size) for i in range(groups))


def parquet_rows(
    source: Input,
    groups: Sequence[int],
    fields: Fields,
    limits: Limits,
    reject: Callable[[int, str, bytes], None],
) -> Generator[Rows, None, int]:
    """The documents of row groups, numbered from the first row of the first; returns the rows.

    Raises InvalidInput where the file is damaged, lacks a column or has another type there.
    """
    names = [name for name in (fields.text, fields.id) if name]
    path, row, given = source.path, 0, 0
    with _parquet(path, source.stamp, names) as file:
        _check_columns(file.schema_arrow, fields, path)
        most = max(FREE_BYTES, int(limits.expansion * source.bytes))
        for batch in _batches(file, groups, names, path):
            with _told(path, row):
                texts = _values(_column(batch, fields.text))
                ids = _names(_values(_column(batch, fields.id))) if fields.id else []
            reasons = _refusals(texts.distinct, limits.document_bytes)
            refuse = partial(_refuse, texts.distinct, reasons, reject)
            for rows in _portions(texts, ids, row + 1, refuse):
                given += sum(map(len, rows.texts))
                if given > most:
                    raise _bomb(path, most)
                yield rows
            row += len(texts.rows)
    return row


def _refuse(
    values: list[Any],
    reasons: list[str],
    reject: Callable[[int, str, bytes], None],
    number: int,
    which: int,
) -> bool:
    """Sets a row aside if its value is no document."""
    if not reasons[which]:
        return False
    reject(number, reasons[which], (values[which] or b"")[:EXCERPT_BYTES])
    return True


def _bomb(path: str, most: int) -> InvalidInput:
    return damaged(
        path,
        f"its rows hold more than {most:,} bytes of text: it may be a bomb",
        hint="raise limits.expansion if the file is sound, or leave it out",
    )


def parquet_records(path: str) -> Iterator[dict[str, Any]]:
    """Every row with all its columns, for small files."""
    with _parquet(path) as file:
        names = [field.name for field in file.schema_arrow]
        for batch in _batches(file, range(file.metadata.num_row_groups), names, path):
            with _told(path):
                records = batch.to_pylist()
            yield from records


@contextlib.contextmanager
def _parquet(path: str, stamp: str = "", dictionaries: Sequence[str] = ()) -> Iterator[Any]:
    """The file, opened; InvalidInput where that fails."""
    parquet = need("pyarrow.parquet", "reading parquet")
    with reading(path, stamp) as file:
        with _told(path):
            opened = parquet.ParquetFile(
                file,
                read_dictionary=list(dictionaries),
                buffer_size=_BUFFER_BYTES,
                page_checksum_verification=True,
            )
        with opened:
            yield opened


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


def _batches(file: Any, groups: Sequence[int], names: Sequence[str], path: str) -> Iterator[Any]:
    """The wanted columns a few rows at a time."""
    row = 0
    for group in groups:
        if group >= file.metadata.num_row_groups:
            raise damaged(path, f"has {file.metadata.num_row_groups} row groups, fewer than before")
        facts = file.metadata.row_group(group)
        mean = max(1, facts.total_byte_size) / max(1, facts.num_rows)
        size = int(min(_MOST_ROWS, max(1, BATCH_BYTES / mean)))
        with _told(path, row):
            batches = file.iter_batches(
                size, row_groups=[group], columns=list(names), use_threads=False
            )
        while True:
            with _told(path, row):
                batch = next(batches, None)
            if batch is None:
                break
            row += len(batch)
            yield batch


def _check_columns(schema: Any, fields: Fields, path: str) -> None:
    """Raises InvalidInput unless the text is a column of strings and the name is there."""
    types = need("pyarrow", "reading parquet").types
    found = _type_at(schema, fields.text)
    if found is None:
        raise _no_column(schema, fields.text, "text_field", path)
    value = found.value_type if types.is_dictionary(found) else found
    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if not any(test(value) for test in tests):
        raise _no_column(schema, fields.text, "text_field", path, kind=str(found))
    if fields.id and _type_at(schema, fields.id) is None:
        raise _no_column(schema, fields.id, "id_field", path)


def _type_at(holder: Any, name: str) -> Any:
    """The type of a column by its dotted path, None where there is none."""
    pyarrow = need("pyarrow", "reading parquet")
    if not (isinstance(holder, pyarrow.Schema) or pyarrow.types.is_struct(holder)):
        return None
    names = [field.name for field in holder]
    if names.count(name) == 1:
        return holder.field(names.index(name)).type
    head, dot, rest = name.partition(".")
    if not dot or names.count(head) != 1:
        return None
    return _type_at(holder.field(names.index(head)).type, rest)


def _no_column(schema: Any, name: str, setting: str, path: str, *, kind: str = "") -> InvalidInput:
    there = [f"{field.name} ({field.type})" for field in schema][:_SHOWN_COLUMNS]
    near = nearest(name, [field.name for field in schema])
    message = f"column {name} is {kind}, not text" if kind else f"has no column {name} for the text"
    if setting == "id_field":
        message = f"has no column {name} for the names of documents"
    listed = ", ".join(there) or "none"
    hint = question(near) if near and not kind else f"set {setting} to one of the columns"
    return InvalidInput(
        [
            Finding(
                message=f"{message}; its columns are {listed}", file=path, key=setting, value=name
            )
        ],
        hint=hint,
    )


def _column(batch: Any, name: str) -> Any:
    """One column of a batch by its dotted path, null where what holds it is."""
    compute = need("pyarrow.compute", "reading parquet")
    names = batch.schema.names
    if name in names:
        return batch.column(names.index(name))
    head, _, rest = name.partition(".")
    return compute.struct_field(batch.column(names.index(head)), rest.split("."))


class _Values(NamedTuple):
    """Values of rows: each distinct one once, None for null, and which of them a row has."""

    distinct: list[Any]
    rows: list[int]


def _values(column: Any) -> _Values:
    """The values of a column; those of strings are bytes."""
    pyarrow = need("pyarrow", "reading parquet")
    if not pyarrow.types.is_dictionary(column.type):
        return _Values(_bytes_of(column).to_pylist(), list(range(len(column))))
    index = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    used, rows = np.unique(index, return_inverse=True)
    nulls = int(len(used) > 0 and used[0] < 0)
    taken = column.dictionary.take(pyarrow.array(used[nulls:]))  # checks the numbers
    return _Values([None] * nulls + _bytes_of(taken).to_pylist(), rows.tolist())


def _bytes_of(column: Any) -> Any:
    pyarrow = need("pyarrow", "reading parquet")
    if pyarrow.types.is_string(column.type):
        return column.cast(pyarrow.binary())
    if pyarrow.types.is_large_string(column.type):
        return column.cast(pyarrow.large_binary())
    return column


def _refusals(values: list[Any], longest_bytes: int) -> list[str]:
    """For each value the reason of REJECTS why it is no document, "" where it is one."""
    reasons = [
        "null" if value is None else "too_long" if len(value) > longest_bytes else ""
        for value in values
    ]
    sound = [value for value, reason in zip(values, reasons, strict=True) if not reason]
    if _is_utf8(b"\n".join(sound)):
        return reasons
    return [
        reason or ("" if _is_utf8(value) else "encoding")
        for value, reason in zip(values, reasons, strict=True)
    ]


def _is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or text.decode() is not None
    except UnicodeDecodeError:
        return False


def _portions(
    texts: _Values, ids: list[str], first: int, refuse: Callable[[int, Any], bool]
) -> Iterator[Rows]:
    """The rows that are documents, about BATCH_BYTES at a time."""
    taken: list[bytes] = []
    numbers: list[int] = []
    size = 0
    for number, which in enumerate(texts.rows, first):
        if refuse(number, which):
            continue
        taken.append(texts.distinct[which])
        numbers.append(number)
        size += len(taken[-1])
        if size >= BATCH_BYTES:
            yield Rows(taken, numbers, [ids[i - first] for i in numbers] if ids else ())
            taken, numbers, size = [], [], 0
    yield Rows(taken, numbers, [ids[i - first] for i in numbers] if ids else ())


def _names(values: _Values) -> list[str]:
    """What rows call themselves, "" unless that is text or a number."""
    distinct = [_name(value) for value in values.distinct]
    return [distinct[which] for which in values.rows]


def _name(value: Any) -> str:
    if isinstance(value, bytes):
        return value[: 4 * LONGEST_ID].decode(errors="replace")[:LONGEST_ID]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""
