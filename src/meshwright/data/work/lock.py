"""One build at a time in a folder, and none before the workers of a killed one are gone."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import IO, TYPE_CHECKING

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

_BUILD = ".lock"
_WORKERS = "workers.lock"
_PATIENCE_S = 60.0  # for the workers of a killed build to notice


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds an output folder for one build; MeshwrightError when another has it.

    The folder is made if need be. The lock goes with the process that holds it, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _BUILD
    with _lock_file(path) as file:
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[IO[str]]:
    """The lock file, open and held. A file that its holder has just removed is made again."""
    while True:
        with path.open("a+", encoding="utf-8") as file:
            if not _hold(file, exclusive=True):
                file.seek(0)
                raise _taken(path, file.read(200))
            if _is_still(file, path):
                yield file
                return


def _is_still(file: IO[str], path: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    return False


def _taken(path: Path, holder: str) -> MeshwrightError:
    return MeshwrightError(
        f"another build is at work in {str(path.parent)!r}{f' ({holder})' if holder else ''}",
        hint="wait for it, or name another folder with -o",
    )


@contextlib.contextmanager
def shared_with_workers(root: Path) -> Iterator[None]:
    """Held by every worker for as long as it lives; `root` holds the finished units."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / _WORKERS).open("a") as file:
        _hold(file, exclusive=False)
        yield


def wait_for_workers(root: Path) -> None:
    """Returns when no worker of an earlier build is left; MeshwrightError if one stays."""
    root.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _PATIENCE_S
    with (root / _WORKERS).open("a") as file:
        while not _hold(file, exclusive=True):
            if time.monotonic() > deadline:
                raise MeshwrightError(
                    "workers of an earlier build are still at work in this folder",
                    hint="end the processes left over from it, and run this again",
                )
            time.sleep(0.05)


def _hold(file: IO[str], *, exclusive: bool) -> bool:
    """Whether the lock could be had at once (a shared one is waited for)."""
    if fcntl is None:
        return True
    kind = fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(file, kind)
    except BlockingIOError:
        return False
    return True
