"""One run at a time in a folder, and none before the ranks of a killed one are gone."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

PATIENCE_S = 10.0  # for ranks of a killed run to be gone
_POLL_S = 0.05


@contextlib.contextmanager
def held(path: Path) -> Iterator[int]:
    """The descriptor of a lock file, which our processes inherit: it is free when all are gone.

    MeshwrightError when another run has it. Where the file system has no locks none is held.
    """
    descriptor = _opened(path)
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not _locked(descriptor):
            if time.monotonic() > end_s:
                raise MeshwrightError(
                    f"another run is at work in {str(path.parent.parent)!r}",
                    hint="wait for it, end it, or name another folder with --out",
                )
            time.sleep(_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """The descriptor of a file that is made where it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise MeshwrightError(
            f"cannot write into {str(path.parent.parent)!r}: {error.strerror or error}",
            hint="name another folder with --out",
        ) from None


def _locked(descriptor: int) -> bool:
    """Whether the lock is ours, or cannot be had by anybody."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # file systems of clusters: ENOLCK, ENOTSUP, ENOSYS
        return True
    return True
