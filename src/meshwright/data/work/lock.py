"""One build at a time in a folder, and none before the workers of a killed one are gone.

Locks are those of the operating system on files: they go with the process that holds them, however
it ends. Several parts of one build (see `engines.array`) share the folder. Where the file system or
the operating system (Windows) has no such locks a build goes on, warned that it may not be alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import IO, TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.data.shards.names import LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Tell = Callable[[str], object]  # hears why nothing can be locked

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_PATIENCE_S = 60.0  # for the workers of a killed build to notice


@contextlib.contextmanager
def locked(
    folder: Path, *, shared: bool = False, tell: Callable[[Finding], object] | None = None
) -> Iterator[None]:
    """Holds an output folder for one build, or with others that share it.

    MeshwrightError when another has it otherwise; `tell` hears where that would not be noticed.
    The folder is made if need be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    warn: Tell = _silent if tell is None else lambda why: tell(_unnoticed(folder, why))
    with _held(folder / LOCK, shared=shared, tell=warn):
        yield


@contextlib.contextmanager
def kept_if_used(folder: Path) -> Iterator[None]:
    """Removes the folder again, where it was made within and is empty when a build is refused."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except MeshwrightError:
        with contextlib.suppress(OSError):  # the first that holds something ends it
            for path in made:
                path.rmdir()
        raise


@contextlib.contextmanager
def _held(path: Path, *, shared: bool, tell: Tell) -> Iterator[None]:
    """The lock file, held; the last holder removes it, and a file removed so is made again."""
    while True:
        with path.open("a+", encoding="utf-8", errors="replace") as file:
            if not _lock(file, shared=shared, wait=False, tell=tell):
                file.seek(0)
                raise _taken(path, file.read(200))
            if _is_still(file, path):
                file.seek(0)
                file.truncate()
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
                try:
                    yield
                finally:
                    if _lock(file, shared=False, wait=False):
                        path.unlink(missing_ok=True)
                return


def _is_still(file: IO[str], path: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    return False


def _unnoticed(folder: Path, why: str) -> Finding:
    return Finding(
        message=f"no lock can be had here ({why}): another build in this folder is not noticed",
        severity=Severity.WARNING,
        file=str(folder),
        hint="let one build at a time run in it",
    )


def _silent(_why: str) -> None:
    """Tells nobody."""


def _taken(path: Path, holder: str) -> MeshwrightError:
    return MeshwrightError(
        f"another build is at work in {str(path.parent)!r}{f' ({holder})' if holder else ''}",
        hint="wait for it, or name another folder with -o",
    )


@contextlib.contextmanager
def held_by_worker(path: Path) -> Iterator[None]:
    """Held by every worker for as long as it lives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:  # NFS shares a lock on what can be read alone
        _lock(file, shared=True, wait=True)
        yield


def wait_for_workers(path: Path) -> None:
    """Returns when no worker of an earlier build is left; MeshwrightError if one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _PATIENCE_S
    with path.open("a") as file:
        while not _lock(file, shared=False, wait=False):
            if time.monotonic() > deadline:
                raise MeshwrightError(
                    "workers of an earlier build are still at work in this folder",
                    hint="end the processes left over from it, and run this again",
                )
            time.sleep(0.05)


def _lock(file: IO[str], *, shared: bool, wait: bool, tell: Tell = _silent) -> bool:
    """Whether nobody else has the lock; `tell` hears where that cannot be known."""
    if fcntl is None:
        tell("the operating system has none")
        return True
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, kind)
    except BlockingIOError:
        return False
    except OSError as error:  # some file systems of clusters: ENOLCK, ENOTSUP, ENOSYS
        tell(error.strerror or str(error))
    return True
