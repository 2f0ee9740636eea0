"""Units of input as batches of documents.

**Line numbers.** `Documents.line` and `Rejected.line` count from the start of the unit's span of
that input, from 1. `count` is called once for each span, in their order, with the number of lines
(parquet: rows) that start in it; whoever runs the units keeps these counts and, when all units are
read, `division.lines_before(units, counts)` tells what to add. A span that starts at the beginning
of its file needs nothing added, so only plain jsonl and text files above `unit_bytes` and parquet
files of several units are concerned. A unit has at most one span of an input.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING

from meshwright.data.source.division import is_whole
from meshwright.data.source.jsonl import Fields, jsonl_rows
from meshwright.data.source.lines import lines_of
from meshwright.data.source.opening import opened
from meshwright.data.source.rejects import Rejected
from meshwright.data.source.rows import Gathering, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from meshwright.data.documents import Documents
    from meshwright.data.settings import Limits, Source
    from meshwright.data.source.unit import Input, Span, Unit


def read_unit(
    unit: Unit,
    inputs: Sequence[Input],
    *,
    sources: Sequence[Source],
    limits: Limits,
    reject: Callable[[Rejected], None],
    count: Callable[[int], None] = lambda _lines: None,
    repaired: Callable[[int, int], None] = lambda _input, _documents: None,
) -> Iterator[Documents]:
    """The documents of a unit in the order of its spans, in batches of about BATCH_BYTES.

    `reject` is told of each line, row or file that is set aside, `count` how many lines each span
    holds (see above), `repaired` how many more documents of an input were not UTF-8. Raises
    InvalidInput for a file that cannot be opened, is cut short, damaged, no longer what it was, or
    lacks the column of the text. Holds a few batches, or a few times limits.document_bytes where
    single documents are larger.
    """
    gathering = Gathering()
    for span in unit.spans:
        source = inputs[span.input]
        tell = partial(_tell, span.input, reject)
        rows = _span_rows(span, source, sources[source.source], limits=limits, reject=tell)
        while True:
            try:
                some = next(rows)
            except StopIteration as end:
                count(end.value)
                break
            if some.repaired:
                repaired(span.input, some.repaired)
            if some.texts:
                yield from gathering.add(some, input=span.input)
    yield from gathering.rest()


def _tell(
    input: int, reject: Callable[[Rejected], None], line: int, reason: str, excerpt: bytes
) -> None:
    reject(Rejected(input, line, reason, excerpt))


def _span_rows(
    span: Span,
    source: Input,
    settings: Source,
    *,
    limits: Limits,
    reject: Callable[[int, str, bytes], None],
) -> Generator[Rows, None, int]:
    """The documents of a span; returns the number of its lines or rows."""
    if source.format == "parquet":
        from meshwright.data.source.parquet import parquet_rows

        fields = Fields(settings.text_field, settings.id_field)
        groups = range(span.start, span.stop)
        if span.part is not None:
            tell = partial(_tell_between, span.part, reject)
            found = parquet_rows(source, groups, fields=fields, limits=limits, reject=tell)
            return (yield from _rows_between(found, *span.part))
        return (
            yield from parquet_rows(source, groups, fields=fields, limits=limits, reject=reject)
        )
    stop = source.bytes if is_whole(source) else span.stop
    with opened(source, span.start, stop, limits=limits, part=span.part) as chunks:
        if source.format == "jsonl":
            fields = Fields(settings.text_field, settings.id_field)
            blocks = lines_of(chunks, longest_bytes=limits.document_bytes)
            return (yield from jsonl_rows(blocks, fields, reject))
        from meshwright.data.source import text

        if source.documents == "file":
            return (yield from text.whole_rows(chunks.inside, limits.document_bytes, reject))
        if source.documents == "line":
            blocks = lines_of(chunks, longest_bytes=limits.document_bytes)
            return (yield from text.line_rows(blocks, reject))
        return (yield from text.paragraph_rows(chunks, limits.document_bytes, reject))


def _rows_between(
    found: Generator[Rows, None, int], start: int, stop: int
) -> Generator[Rows, None, int]:
    """Those rows of parquet that lie from `start` to before `stop`, counted from 0."""
    with contextlib.closing(found):
        for rows in found:
            if rows.lines and rows.lines[0] > stop:
                break
            here = slice(bisect_left(rows.lines, start + 1), bisect_left(rows.lines, stop + 1))
            yield Rows(rows.texts[here], rows.lines[here], rows.ids[here])
    return stop - start


def _tell_between(
    part: tuple[int, int],
    reject: Callable[[int, str, bytes], None],
    line: int,
    reason: str,
    excerpt: bytes,
) -> None:
    if part[0] < line <= part[1]:
        reject(line, reason, excerpt)
