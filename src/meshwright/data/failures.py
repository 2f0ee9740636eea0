"""What the operating system has against a build, in one sentence with what to do."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.data.shards.names import WORK

if TYPE_CHECKING:
    from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
_AGAIN = "run the same command again: what is finished is kept"


def broken_off(error: OSError, folder: Path) -> MeshwrightError:
    """The error that a build ends with; nothing that was finished is lost."""
    place = str(error.filename or folder)
    what = error.strerror or str(error)
    if error.errno in _FULL:
        message = f"no space left for {str(folder)!r} ({what})"
        return MeshwrightError(message, hint=f"free some, or move the folder; then {_AGAIN}")
    if isinstance(error, PermissionError):
        return MeshwrightError(f"{place!r}: {what}", hint=f"mend its permissions, then {_AGAIN}")
    if isinstance(error, FileNotFoundError) and has_vanished(folder, place):
        message = (
            f"{str(folder)!r} vanished, or was emptied, while the build wrote into it ({what})"
        )
        return MeshwrightError(message, hint="see what removes it, then run the same command again")
    if str(folder) in place:
        message = f"cannot write {place!r}: {what}"
        return MeshwrightError(message, hint="name another folder with -o")
    if isinstance(error, FileNotFoundError):
        message = f"{place!r} is gone while it was needed ({what})"
        return MeshwrightError(message, hint=f"put it back, then {_AGAIN}")
    return MeshwrightError(f"cannot read or write {place!r}: {what}", hint=f"then {_AGAIN}")


def has_vanished(folder: Path, missing: str) -> bool:
    """Whether a missing file is one that the build itself had put into its output folder."""
    return not folder.exists() or f"{folder / WORK}{os.sep}" in f"{missing}{os.sep}"
