"""Processes that never outlive the one that started them.

Linux kills a child with its parent where the child asks for it (prctl PR_SET_PDEATHSIG). Elsewhere
a pipe that the parent holds open says the same: its end of file is the parent's death.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.01


def die_with(parent: int) -> None:
    """This process is killed as soon as `parent`, which started it, ends; Linux only.

    The signal follows the parent's thread that started this process, so that thread must live as
    long as the child is wanted. A parent that is gone already ends this process here.
    """
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os._exit(1)


def die_with_pipe(descriptor: int) -> None:
    """This process ends once nobody holds the other end of a pipe; `descriptor` is read from."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(descriptor, 1):
                pass
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Children of children that die become this process's own meanwhile; Linux only."""
    adopted = _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        if adopted:
            _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _prctl(option: int, value: int) -> bool:
    """Whether the call was made and worked."""
    if not sys.platform.startswith("linux"):
        return False
    done: int = ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    return done == 0


def started_at(pid: int) -> str:
    """When a process was started, in the kernel's own words; "" where it is gone or unknown.

    With its number it names a process for good, as numbers are used again.
    """
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else ""


def state(pid: int) -> str:
    """The kernel's letter: R runs, S sleeps, D in the kernel, T stopped, Z ended; "" unknown."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on: the name before them may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int, *, since: str = "") -> bool:
    """Whether a process runs, the one that was started at `since` where that is known."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return not since  # it is another user's: the number was used again
    return (not since or started_at(pid) == since) and state(pid) != "Z"


def kill(pids: Iterable[tuple[int, str]], *, sign: int = signal.SIGKILL) -> None:
    """Sends a signal to processes that are still those that started at the given time."""
    for pid, since in pids:
        if alive(pid, since=since):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sign)


def kill_session(leader: int) -> None:
    """Kills every process of the session that `leader`, our own child, began."""
    for pid in _session(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_adopted(sessions: Collection[int], *, within_s: float) -> None:
    """Kills processes of the sessions that became our children when their parents died; Linux only.

    What a rank started itself, a compiler say, is found so wherever the rank's session is its own.
    A process that the kernel holds, waiting for a GPU or a disk, is given up after the time.
    """
    end_s = time.monotonic() + within_s
    while found := [pid for pid in _children() if _is_in(pid, sessions)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > end_s:
            return
        time.sleep(_POLL_S)


def _is_in(pid: int, sessions: Collection[int]) -> bool:
    fields = _stat(pid)
    return len(fields) > 3 and int(fields[3]) in sessions


def _children() -> list[int]:
    """Our children, those of every thread."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def _session(leader: int) -> list[int]:
    """Numbers of the processes in a session; empty where there is no /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(entry.name))
        if len(fields) > 3 and fields[3] == str(leader) and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def gone_within(pids: Iterable[tuple[int, str]], seconds: float) -> bool:
    """Whether all of these processes ended within the time."""
    waited = list(pids)
    end_s = time.monotonic() + seconds
    while any(alive(pid, since=since) for pid, since in waited):
        if time.monotonic() > end_s:
            return False
        time.sleep(_POLL_S)
    return True
