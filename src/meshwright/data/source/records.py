"""Whole records of small files, such as the test sets that documents are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.data.needs import need
from meshwright.data.source.jsonl import Unread, record_of
from meshwright.data.source.lines import lines_of
from meshwright.data.source.opening import opened
from meshwright.data.source.rejects import REJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.settings import Limits
    from meshwright.data.source.unit import Input


def records_of(source: Input, limits: Limits) -> Iterator[dict[str, Any]]:
    """The records of one input; InvalidInput for the first line that cannot be read."""
    if source.bytes == 0:
        return
    if source.format == "parquet":
        from meshwright.data.source.parquet import parquet_records

        yield from parquet_records(source.path, limits)
        return
    loads = need("orjson", "reading jsonl").loads
    with opened(source, 0, source.bytes, limits=limits) as chunks:
        for block in lines_of(chunks, longest_bytes=limits.document_bytes):
            for number, line in enumerate(block.lines, block.first):
                if block.too_long:
                    raise _bad(source.path, number, "too_long")
                if source.format == "text":
                    if line.strip():
                        yield {"text": _decoded(line, source.path, number)}
                    continue
                try:
                    record = record_of(line, None, loads)
                except Unread as reason:
                    raise _bad(source.path, number, str(reason)) from None
                if record is not None:
                    yield record


def _decoded(line: bytes, path: str, number: int) -> str:
    """A line of text; one that is mended would be found in no document."""
    try:
        return line.decode().strip("\ufeff\r")
    except UnicodeDecodeError:
        raise _bad(path, number, "encoding") from None


def _bad(path: str, line: int, reason: str) -> InvalidInput:
    hint = "mend the line or take it out"
    if reason == "encoding":
        hint = "make it UTF-8: iconv -f latin1 -t utf-8 OLD > NEW"
    return InvalidInput(
        [Finding(message=REJECTS[reason], file=path, line=line, reason=reason, hint=hint)]
    )
