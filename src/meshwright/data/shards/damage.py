"""The error for a file of shards that is not what was written."""

from __future__ import annotations

from pathlib import Path

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding

_HINT = "meshwright data verify FOLDER tells what is damaged; build again what is"


def damaged(path: object, reason: str) -> InvalidInput:
    """What is wrong with the file at `path`, in words that follow its name."""
    message = f"{Path(str(path)).name} {reason}"
    return InvalidInput([Finding(message=message, file=str(path), hint=_HINT)])
