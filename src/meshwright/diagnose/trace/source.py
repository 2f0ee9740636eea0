"""The text of a trace file in bounded pieces, inflated as it is read.

Files are untrusted: only regular files are opened, and a compressed file may state neither more
bytes nor a higher ratio than a trace can have.
"""

from __future__ import annotations

import os
import stat
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

PIECE_BYTES = 1 << 19  # with the events that it holds, what a core's cache holds
LIMIT_BYTES = 16 << 30
RATIO = 200  # inflated bytes to a compressed one; real traces have 8 to 40
RATIO_FROM_BYTES = 256 << 20  # below this, any ratio is harmless
_READ = 1 << 18
GZIP = b"\x1f\x8b"
_REFUSED = {
    b"\x80\x02": "pickle",
    b"\x80\x03": "pickle",
    b"\x80\x04": "pickle",
    b"\x80\x05": "pickle",
    b"PK\x03\x04": "zip archive",
    b"BZh": "bzip2 file",
    b"\xfd7zXZ": "xz file",
    b"\x28\xb5\x2f\xfd": "zstandard file",
    b"SQLite format 3": "SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x7fELF": "program",
    b"\x89PNG": "picture",
    b"PAR1": "Parquet file",
}
_HINTS = {
    "pickle": "a pickle runs code when it is read and is refused; "
    "write JSON with `json.dump` in the program that made it",
    "zip archive": "unpack it first: `unzip FILE`",
    "tar archive": "unpack it first: `tar -xf FILE`",
    "bzip2 file": "unpack it first: `bunzip2 FILE`",
    "xz file": "unpack it first: `unxz FILE`",
    "zstandard file": "unpack it first: `zstd -d FILE`",
    "SQLite database": "Nsight's databases are not read; "
    "profile with `torch.profiler` and `export_chrome_trace`",
    "UTF-16 text": "convert it: `iconv -f UTF-16 -t UTF-8 FILE`",
}
HINT = "give a trace written by `torch.profiler` (`export_chrome_trace`), .json or .json.gz"


def refuse(path: Path | str, reason: str, *, hint: str = HINT, message: str = "") -> NoReturn:
    """Raises `InvalidInput` for a file."""
    text = message or f"no trace can be read from it: {reason}"
    raise InvalidInput([Finding(message=text, file=str(path), reason=reason, hint=hint)])


def first_bytes(path: Path | str, count: int) -> bytes:
    """The first bytes of the file's text, inflated; raises `InvalidInput` if it cannot be read."""
    with _opened(path) as file:
        head = file.read(count)
        if head[:2] != GZIP:
            return head
    text = b""
    for piece in text_pieces(path, told=[]):
        text += piece
        if len(text) >= count:
            break
    return text[:count]


def word_of(head: bytes) -> str:
    """What a file is by its first bytes, "" if it may be text."""
    if head[257:262] == b"ustar":
        return "tar archive"
    return next((word for magic, word in _REFUSED.items() if head.startswith(magic)), "")


def text_pieces(
    path: Path | str, *, told: list[Left], limit_bytes: int = LIMIT_BYTES
) -> Iterator[bytes]:
    """The file's text in pieces of at most `PIECE_BYTES`; what cannot be read is added to `told`.

    Raises `InvalidInput` where the file is none, cannot be opened, is empty, is known to be
    something else, or is a bomb.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(512)
        if not head:
            refuse(path, "the file is empty")
        if head[:2] == GZIP:
            yield from _inflated(path, file, head, size=size, told=told, limit_bytes=limit_bytes)
            return
        _check(path, head)
        if size > limit_bytes:
            refuse(path, f"{size:,} bytes are more than the limit of {limit_bytes:,}")
        yield _without_mark(head)
        while piece := _read(file, PIECE_BYTES, told):
            yield piece


def _check(path: Path | str, head: bytes) -> None:
    if word := word_of(head):
        refuse(path, f"it is a {word}", hint=_HINTS.get(word, HINT))


def _without_mark(head: bytes) -> bytes:
    return head.removeprefix(b"\xef\xbb\xbf")


def _opened(path: Path | str) -> BinaryIO:
    """The file, open; only regular files, for a pipe would block and a device never end."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            refuse(path, "it is a folder", hint="give the files in it")
        if not stat.S_ISREG(mode):
            refuse(path, "it is not a regular file")
        return open(path, "rb")
    except OSError as error:
        refuse(path, (error.strerror or str(error)).lower(), hint="check the path and its rights")
    except ValueError as error:  # a null character
        refuse(path, str(error), hint="check the path")


def _read(file: BinaryIO, count: int, told: list[Left]) -> bytes:
    try:
        return file.read(count)
    except OSError as error:
        reason = f"reading failed: {error.strerror}"
        told.append(Left(what="rest of the file", count=1, time_us=0.0, reason=reason))
        return b""


def _zlib() -> Any:
    """The fastest of the installed inflaters, which share one interface."""
    for name in ("isal.isal_zlib", "zlib_ng.zlib_ng"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return zlib


def _inflated(
    path: Path | str,
    file: BinaryIO,
    head: bytes,
    *,
    size: int,
    told: list[Left],
    limit_bytes: int,
) -> Iterator[bytes]:
    """The text of a gzip file of any number of members."""
    library = _zlib()
    made, first, count = library.decompressobj(wbits=31), True, 0
    packed = head
    while packed:
        try:
            piece = made.decompress(packed, PIECE_BYTES)
        except (library.error, zlib.error) as error:
            told.append(_broken(f"its compressed data is damaged ({error})"))
            return
        count += len(piece)
        _check_growth(path, count, size=size, limit_bytes=limit_bytes)
        if piece and first:
            _check(path, piece)
            piece, first = _without_mark(piece), False
        if piece:
            yield piece
        packed = made.unconsumed_tail
        if made.eof:
            packed = (made.unused_data or _read(file, _READ, told)).lstrip(b"\0")
            if packed and not packed.startswith(GZIP[: len(packed)]):
                told.append(_broken("what follows its compressed data is none"))
                return
            if packed:
                made = library.decompressobj(wbits=31)
            continue
        packed = packed or _read(file, _READ, told)
    yield made.flush()
    if not made.eof:
        told.append(_broken("its compressed data ends too early"))


def _broken(reason: str) -> Left:
    return Left(what="end of the file", count=1, time_us=0.0, reason=reason)


def _check_growth(path: Path | str, count: int, *, size: int, limit_bytes: int) -> None:
    hint = "unpack it yourself if it is what it should be, and give the .json"
    if count > limit_bytes:
        refuse(path, f"it inflates to more than {limit_bytes:,} bytes", hint=hint)
    if count > RATIO_FROM_BYTES and count > RATIO * size:
        refuse(
            path, f"it inflates to more than {RATIO} times its size, as no trace does", hint=hint
        )
