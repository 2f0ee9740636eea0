"""Text of files that nobody vouches for: plain or gzip, never more than a limit, cut files kept.

A file compressed a thousandfold must not fill the memory, so that text is read in pieces and the
reading stops at a limit. What is lost is said with a `Left`.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\x1f\x8b"
PIECE = 1 << 20
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)


def refusal(path: str | Path, reason: str, *, hint: str) -> InvalidInput:
    """The error for a file that is of no use, with what to type next."""
    text = f"{Path(path).name} {reason}"
    return InvalidInput([Finding(message=text, file=str(path), reason=reason, hint=hint)])


def pieces_of(path: str | Path, left: list[Left]) -> Iterator[bytes]:
    """The text of a file piece by piece; where compressed text breaks off, `left` says so."""
    try:
        with _opened(path) as stream:
            yield from _pieces(stream, left)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise refusal(path, reason, hint="give the path of a file") from None


def whole_text(path: str | Path, *, limit_bytes: int, left: list[Left]) -> bytes:
    """All of a file's text, up to a limit above which the file is refused.

    Raises `InvalidInput` for files that cannot be read or hold more than `limit_bytes`.
    """
    text = bytearray()
    for piece in pieces_of(path, left):
        text += piece
        if len(text) > limit_bytes:
            raise refusal(
                path,
                f"holds more than {limit_bytes >> 20:,} MiB of text",
                hint="cut it to fewer steps",
            )
    return bytes(text)


def _opened(path: str | Path) -> Any:
    with Path(path).open("rb") as file:
        zipped = file.read(2) == MAGIC
    return gzip.open(path, "rb") if zipped else Path(path).open("rb")


def _pieces(stream: Any, left: list[Left]) -> Iterator[bytes]:
    while True:
        try:
            piece = stream.read1(PIECE)
        except BROKEN:
            left.append(_cut())
            return
        if not piece:
            return
        yield piece


def _cut() -> Left:
    return Left(
        what="the rest of the file",
        count=1,
        time_us=0.0,
        reason="its compressed text breaks off or is damaged",
    )
