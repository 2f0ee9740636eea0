"""Errors of input files, told as findings."""

from __future__ import annotations

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding


def unreadable(path: str, error: BaseException) -> InvalidInput:
    """What to raise when the system refuses a file."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    hint = "see that the file is there and may be read"
    finding = Finding(message=f"cannot be read: {reason}", file=path, reason=reason, hint=hint)
    return InvalidInput([finding])


def damaged(path: str, reason: str, *, hint: str = "") -> InvalidInput:
    """What to raise when the content of a file is not what it must be."""
    hint = hint or "fetch or write the file again, or leave it out"
    return InvalidInput([Finding(message=reason, file=path, reason=reason, hint=hint)])
