"""The bytes of an input: whole or in part, from disk or by URL, decompressed on the way.

Nothing here holds more than a chunk or two. A file that ends too early, is damaged or expands
beyond its limit stops with an InvalidInput that names it and says how far it could be read.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, BinaryIO

from meshwright.base.noun import dataclass
from meshwright.data.source.damage import damaged, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.settings import Limits
    from meshwright.data.source.unit import Input

CHUNK_BYTES = 1 << 20
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
def reading(path: str) -> Iterator[BinaryIO]:
    """The file at a path or URL, to be read in any order; InvalidInput where the system refuses."""
    try:
        with _open(path) as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from None


def _open(path: str) -> BinaryIO:
    if not is_url(path):
        return open(path, "rb", buffering=0)
    from meshwright.data.source.urls import open_url

    return open_url(path)


@contextlib.contextmanager
def opened(source: Input, start: int, stop: int, *, limits: Limits) -> Iterator[Chunks]:
    """A byte range of a plain input; of a compressed one, whole and decompressed."""
    with reading(source.path) as file:
        if source.compression:
            yield Chunks(decompressed(file, source, limits=limits), iter(()), before=False)
            return
        before = start > 0
        stop = min(stop, source.bytes)
        inside = _range(file, source, start - before, stop, CHUNK_BYTES)
        beyond = _range(file, source, stop, source.bytes, TAIL_BYTES)
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


def expanded(file: BinaryIO, path: str, compression: str) -> Iterator[bytes]:
    """The content of a file from where it stands, without a limit."""
    if compression == "gz":
        from meshwright.data.source.gzip import STORED_BYTES, gunzipped

        return gunzipped(_stored(file, STORED_BYTES), path)
    from meshwright.data.source.zstd import unzstandard

    return unzstandard(_stored(file, 256 << 10), path)


def _stored(file: BinaryIO, chunk_bytes: int) -> Iterator[bytes]:
    while chunk := file.read(chunk_bytes):
        yield chunk


def _range(
    file: BinaryIO, source: Input, start: int, stop: int, chunk_bytes: int
) -> Iterator[bytes]:
    """The bytes start..stop in chunks; a file that is shorter by now is damaged."""
    if start >= stop:
        return
    file.seek(start)
    while start < stop:
        chunk = file.read(min(chunk_bytes, stop - start))
        if not chunk:
            raise damaged(
                source.path, f"ends at byte {start:,}, although it had {source.bytes:,} before"
            )
        start += len(chunk)
        yield chunk
