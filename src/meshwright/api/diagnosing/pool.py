"""Files read by several processes at once, each holding one trace at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from meshwright.api.diagnosing.worker import Answer, answer
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SMALL_BYTES = 4 << 20  # of all files: below it a process costs more than it saves
_PER_CORE = 4  # processes at most: more take memory, each a trace's, and save no time
_PATIENCE_S = 5.0
_MAIN = f"from {__package__}.worker import main; main()"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection


def answers(
    paths: Sequence[Path],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Answer]:
    """An answer for each path, in their order; `progress(done, of)` is called after each.

    With several files of some size, processes read them (`workers`, by default one a core); one
    that dies costs its file only. A KeyboardInterrupt ends them all.
    """
    found: dict[Path, Answer] = {}
    for path, one in _each(paths, _workers_for(paths, workers)):
        found[path] = one
        if progress is not None:
            progress(len(found), len(paths))
    return [found[path] for path in paths]


def _workers_for(paths: Sequence[Path], asked: int | None) -> int:
    """Processes that are worth starting; 0 where this one reads everything itself."""
    most = min(asked or _cores(), _PER_CORE * _cores(), len(paths))
    if os.name == "nt" or not sys.executable or most < 2:
        return 0
    return most if asked or sum(map(_size, paths)) > SMALL_BYTES else 0


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _each(paths: Sequence[Path], workers: int) -> Iterator[tuple[Path, Answer]]:
    """Answers as they come."""
    if not workers:
        yield from ((path, answer(path)) for path in paths)
        return
    waiting = deque(sorted(paths, key=_size, reverse=True))  # a large one last would be waited for
    pool: list[_Worker] = []
    try:
        for _ in range(workers):
            pool.append(_started())  # noqa: PERF401 - an interruption finds those that run
        yield from _handed_out(waiting, pool)
    finally:
        for worker in pool:
            _end(worker)


def _handed_out(waiting: deque[Path], pool: list[_Worker]) -> Iterator[tuple[Path, Answer]]:
    """Every worker gets the next file as soon as it is free; one that died is replaced."""
    busy: dict[Connection, tuple[_Worker, Path]] = {}
    for worker in list(pool):
        _ask(worker, waiting, busy)
    while busy:
        for ready in wait(list(busy)):
            worker, path = busy.pop(ready)  # type: ignore[call-overload]
            found = _received(worker, path)
            if worker.process.poll() is not None:
                pool.remove(worker)
                _end(worker)
                worker = _started()
                pool.append(worker)
            _ask(worker, waiting, busy)
            yield path, found


def _ask(
    worker: _Worker, waiting: deque[Path], busy: dict[Connection, tuple[_Worker, Path]]
) -> None:
    if waiting:
        path = waiting.popleft()
        busy[worker.connection] = (worker, path)
        try:
            worker.connection.send(str(path))
        except OSError:  # it is dead: its connection reads as closed
            return


def _received(worker: _Worker, path: Path) -> Answer:
    """What a worker says of its file, or that it is gone."""
    try:
        found: Answer = worker.connection.recv()
    except (EOFError, OSError):
        code = _ended(worker.process)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        hint = "was the memory used up? run it again with --workers 1"
        return Answer(file=str(path), error=f"the process that read it {how}", hint=hint)
    return found


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that has closed its connection."""
    try:
        return process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _started() -> _Worker:
    """A worker of its own: no import of the caller's main module, no folder on its path but ours.

    It is in a session of its own, so that Ctrl-C reaches the process that asks, and that alone.
    """
    ours, theirs = Pipe()
    known = [entry for entry in sys.path if entry]
    environment = os.environ | dict.fromkeys(_THREADS, "1") | {"PYTHONPATH": os.pathsep.join(known)}
    command = [sys.executable, "-P", "-c", _MAIN, str(theirs.fileno())]
    process = subprocess.Popen(
        command,
        env=environment,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    return _Worker(process, ours)


def _end(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.kill()
    worker.process.wait()
