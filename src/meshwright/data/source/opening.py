"""The bytes of an input: whole or in part, from disk or by URL, decompressed on the way.

Nothing here holds more than a chunk or two. A file that ends too early, is damaged or expands
beyond its limit stops with an InvalidInput that names it and says how far it could be read.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, BinaryIO

from meshwright.base.noun import dataclass
from meshwright.data.source.damage import damaged, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.settings import Limits
    from meshwright.data.source.unit import Input

CHUNK_BYTES = 128 << 10  # stays in a core's cache: larger ones are read 10 % slower
TAIL_BYTES = 64 << 10  # read at once beyond the end of a range, where little is needed
FREE_BYTES = 1 << 30  # may come out of any compressed file, however small it is


@dataclass(frozen=True, slots=True)
class Chunks:
    """The bytes of a range, then lazily what follows it: a line may end beyond its range.

    `before` tells whether the first byte of `inside` is the one before the range, which is there
    to see whether a line starts with it.
    """

    inside: Iterator[bytes]
    beyond: Iterator[bytes]
    before: bool


def is_url(path: str) -> bool:
    """Whether a path is for fsspec rather than the local file system."""
    return "://" in path or "::" in path


@contextlib.contextmanager
def reading(path: str, stamp: str = "") -> Iterator[BinaryIO]:
    """The file at a path or URL, to be read in any order by `read_from`.

    Raises InvalidInput where the system refuses, or where a local file is no longer the one whose
    `file_stamp` was given.
    """
    try:
        file = _open(path)
    except OSError as error:
        raise unreadable(path, error) from None
    with file:
        if "-" in stamp and not is_url(path) and file_stamp(os.fstat(file.fileno())) != stamp:
            raise damaged(path, "changed while it was being read", hint="run the command again")
        yield file


def file_stamp(state: os.stat_result) -> str:
    """What changes when a local file does."""
    return f"{state.st_mtime_ns}-{state.st_size}"


def read_from(file: BinaryIO, path: str, count: int) -> bytes:
    """Up to `count` bytes from where the file stands, b"" at its end."""
    try:
        return file.read(count)
    except OSError as error:
        raise unreadable(path, error) from None


def read_at(file: BinaryIO, path: str, *, at: int, count: int) -> bytes:
    """The `count` bytes from a place of the file, fewer only at its end."""
    parts = []
    try:
        file.seek(at)
        while count > 0 and (part := file.read(count)):
            parts.append(part)
            count -= len(part)
    except (OSError, ValueError, OverflowError) as error:
        raise unreadable(path, error) from None
    return b"".join(parts)


def _open(path: str) -> BinaryIO:
    if not is_url(path):
        return open(path, "rb", buffering=0)
    from meshwright.data.source.urls import open_url

    return open_url(path)


@contextlib.contextmanager
def opened(
    source: Input,
    start: int,
    stop: int,
    *,
    limits: Limits,
    part: tuple[int, int] | None = None,
) -> Iterator[Chunks]:
    """A byte range of a plain input; a compressed one whole, or that `part` of its content."""
    with reading(source.path, source.stamp) as file:
        if source.compression:
            content = decompressed(file, source, limits=limits)
            yield Chunks(content, iter(()), before=False) if part is None else cut(content, *part)
            return
        before = start > 0
        stop = min(stop, source.bytes)
        inside = _range(file, source, start=start - before, stop=stop, chunk_bytes=CHUNK_BYTES)
        beyond = _range(file, source, start=stop, stop=source.bytes, chunk_bytes=TAIL_BYTES)
        yield Chunks(inside, beyond, before)


def decompressed(file: BinaryIO, source: Input, *, limits: Limits) -> Iterator[bytes]:
    """The content of a compressed file, at most limits.expansion times what is stored."""
    most = max(FREE_BYTES, int(limits.expansion * source.bytes))
    total = 0
    for chunk in expanded(file, source.path, source.compression):
        total += len(chunk)
        if total > most:
            raise damaged(
                source.path,
                f"expands to more than {most:,} bytes from {source.bytes:,}: it may be a bomb",
                hint="raise limits.expansion if the file is sound, or leave it out",
            )
        yield chunk


def cut(content: Iterator[bytes], start: int, stop: int) -> Chunks:
    """The bytes start..stop of a stream, of which all before them is passed over."""
    before = start > 0
    rest: list[bytes] = []

    def inside() -> Iterator[bytes]:
        at, first = 0, start - before
        for chunk in content:
            piece = chunk[max(0, first - at) : stop - at]
            if piece:
                yield piece
            if at + len(chunk) >= stop:
                rest.append(chunk[stop - at :])
                return
            at += len(chunk)

    def beyond() -> Iterator[bytes]:
        yield from rest
        yield from content

    return Chunks(inside(), beyond(), before)


def expanded(file: BinaryIO, path: str, compression: str) -> Iterator[bytes]:
    """The content of a file from where it stands, without a limit."""
    if compression == "gz":
        from meshwright.data.source.gzip import STORED_BYTES, gunzipped

        return gunzipped(_stored(file, path, STORED_BYTES), path)
    from meshwright.data.source.zstd import unzstandard

    return unzstandard(_stored(file, path, 256 << 10), path)


def _stored(file: BinaryIO, path: str, chunk_bytes: int) -> Iterator[bytes]:
    while chunk := read_from(file, path, chunk_bytes):
        yield chunk


def _range(
    file: BinaryIO, source: Input, *, start: int, stop: int, chunk_bytes: int
) -> Iterator[bytes]:
    """The bytes start..stop in chunks; a file that is shorter by now is damaged."""
    if start >= stop:
        return
    file.seek(start)
    while start < stop:
        chunk = read_from(file, source.path, min(chunk_bytes, stop - start))
        if not chunk:
            raise damaged(
                source.path, f"ends at byte {start:,}, although it had {source.bytes:,} before"
            )
        start += len(chunk)
        yield chunk
