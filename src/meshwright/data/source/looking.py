"""A look at how a file begins: what it is, whatever its name says, and whether it can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding, Severity
from meshwright.data.source.kinds import (
    COMPRESSIONS,
    FORMATS,
    HEAD_BYTES,
    UNPACK,
    guessed,
    is_utf16,
    kind_by_name,
    magic,
)
from meshwright.data.source.opening import expanded, read_at, reading
from meshwright.data.source.unit import Input

if TYPE_CHECKING:
    from meshwright.data.settings import Source
    from meshwright.data.source.places import Found

_UTF16_HINT = "iconv -f UTF-16 -t UTF-8 FILE > NEW"


class Head(NamedTuple):
    """How the content of a file begins, decompressed, and by what it was compressed."""

    content: bytes
    compression: str


class Look(NamedTuple):
    """What a file turned out to be: an input unless it cannot be read, and what is to be told."""

    input: Input | None
    findings: tuple[Finding, ...] = ()


def look_at(found: Found, number: int, source: Source) -> Look:
    """A file of source `number`, by how it begins."""
    try:
        head = _head(found.path)
    except InvalidInput as error:
        return Look(None, error.findings)
    wrong = _refusal(head, found, source)
    if wrong is not None and wrong.severity is Severity.ERROR:
        return Look(None, (wrong,))
    made = Input(
        path=found.path,
        source=number,
        format=_format(head, found.path, source),
        compression=head.compression,
        bytes=found.bytes,
        stamp=found.stamp,
        documents=source.documents,
    )
    return Look(made, (wrong,) if wrong is not None else ())


def _head(path: str) -> Head:
    """The first bytes of the content."""
    with reading(path) as file:
        stored = read_at(file, path, at=0, count=HEAD_BYTES)
        compression = COMPRESSIONS.get(magic(stored), "")
        if not compression:
            return Head(stored, "")
        file.seek(0)
        content = b""
        pieces = expanded(file, path, compression)
        while len(content) < HEAD_BYTES and (piece := next(pieces, b"")):
            content += piece
        return Head(content[:HEAD_BYTES], compression)


def _format(head: Head, path: str, source: Source) -> str:
    """What a source says, else how the content begins, else the name, else a guess."""
    if source.format != "auto":
        return source.format
    if magic(head.content) == ".parquet":
        return "parquet"
    return kind_by_name(path).format or guessed(head.content)


def _refusal(head: Head, found: Found, source: Source) -> Finding | None:
    """What is wrong with a file, or worth to be told."""
    path, content = found.path, head.content
    if not content:
        return Finding(message="an empty file", severity=Severity.INFO, file=path)
    kind = magic(content)
    wanted = _format(head, path, source)
    if kind == ".parquet" and (head.compression or wanted != "parquet"):
        return _parquet_refusal(head, path, wanted)
    if kind and FORMATS.get(kind) != wanted:
        what = UNPACK.get(kind) or ("decompress it once" if kind in COMPRESSIONS else "")
        return Finding(
            message=f"is a {kind} file{' in a compressed one' if head.compression else ''}",
            file=path,
            reason="not jsonl, parquet or text, plain, gz or zst",
            hint=f"turn it into one that is read: {what}" if what else "leave it out",
        )
    named = kind_by_name(path).compression
    if named and not head.compression and guessed(content) != (wanted or "text"):
        return Finding(
            message=f"is not {named}, although its name says so",
            file=path,
            value=content[:8],
            hint="fetch it again, or leave it out",
        )
    if wanted == "parquet":
        return None if kind == ".parquet" else _not_parquet(path, content)
    return _text_refusal(path, content, wanted)


def _parquet_refusal(head: Head, path: str, wanted: str) -> Finding:
    if head.compression:
        return Finding(
            message=f"is parquet inside {head.compression}, which cannot be read in parts",
            file=path,
            hint=f"{'gzip' if head.compression == 'gz' else 'zstd'} -d FILE",
        )
    return Finding(
        message=f"is parquet, not {wanted}",
        file=path,
        key="format",
        value=wanted,
        hint='set format = "parquet" or "auto"',
    )


def _not_parquet(path: str, content: bytes) -> Finding:
    guess = guessed(content)
    return Finding(
        message="is not parquet: it does not begin with PAR1",
        file=path,
        value=content[:8],
        hint=f'set format = "{guess}"' if guess else "fetch it again, or leave it out",
    )


def _text_refusal(path: str, content: bytes, wanted: str) -> Finding | None:
    """What keeps text from being read as `wanted`."""
    if is_utf16(content):
        return Finding(message="is UTF-16; text must be UTF-8", file=path, hint=_UTF16_HINT)
    if not wanted:
        return Finding(
            message="is of no known kind: neither jsonl nor parquet nor text",
            file=path,
            value=content[:8],
            hint='leave it out, or set format = "text" if it is text',
        )
    if wanted == "jsonl":
        return _json_refusal(path, content)
    return None


def _json_refusal(path: str, content: bytes) -> Finding | None:
    """One JSON value over many lines, which is not jsonl."""
    first = content.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0].strip()
    if first == b"{":
        what, filter_ = "JSON spread over lines", "."
    elif first.startswith(b"["):
        what, filter_ = "one JSON array", ".[]"
    else:
        return None
    return Finding(
        message=f"is {what}; jsonl has one object on each line",
        file=path,
        line=1,
        value=first[:40].decode(errors="replace"),
        hint=f"jq -c '{filter_}' FILE > NEW.jsonl",
    )
