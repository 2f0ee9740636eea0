"""Whole text of files that nobody vouches for: plain or gzip, up to a limit, cut files kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.diagnose.trace.source import text_pieces

if TYPE_CHECKING:
    from meshwright.diagnose.trace.columns import Left


def refusal(path: str | Path, reason: str, *, hint: str) -> InvalidInput:
    """The error for a file that is of no use, with what to type next."""
    text = f"{Path(path).name or 'nothing'} {reason}"
    return InvalidInput([Finding(message=text, file=str(path), reason=reason, hint=hint)])


def whole_text(path: str | Path, *, limit_bytes: int, left: list[Left]) -> bytearray:
    """All of a file's text; where compressed text breaks off, `left` says so.

    Raises `InvalidInput` for files that cannot be read, are no text, or hold more than
    `limit_bytes`.
    """
    text = bytearray()
    for piece in text_pieces(path, told=left, limit_bytes=limit_bytes):
        text += piece
    return text
