"""Units made by a pool of processes on this machine, started once for all stages.

Workers are spawned, not forked, each with one thread. A worker leaves by itself when the process
that started it is gone, however that ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Self

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.work.engines.answers import answer, raise_answer
from meshwright.data.work.engines.threads import single_threaded
from meshwright.data.work.lock import held_by_worker
from meshwright.data.work.memory import keep_freed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.plan import Stage
    from meshwright.data.work.engines import Make, OnDone
    from meshwright.data.work.engines.answers import Answer

_PATIENCE_S = 5.0  # for a worker to end when it is told to


@dataclass(frozen=True, slots=True)
class _Worker:
    process: SpawnProcess
    connection: Connection


class Processes:
    """A pool of `workers` processes."""

    def __init__(self, job: Job, workers: int, *, lock: Path) -> None:
        """`lock` is held by each worker for as long as it lives."""
        self.job = job
        self.lock = lock
        self.workers = workers
        self._pool: list[_Worker] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        with single_threaded():
            for _ in range(self.workers):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve, args=(theirs, self.job, self.lock), daemon=True
                )
                process.start()
                theirs.close()
                self._pool.append(_Worker(process, ours))
        return self

    def run(self, stage: Stage, numbers: Sequence[int], on_done: OnDone) -> None:
        """Makes every unit; each worker gets the next one as soon as it is free."""
        make, waiting = stage.make, list(reversed(numbers))
        busy: dict[Connection, tuple[_Worker, int]] = {}
        for worker in self._pool:
            _hand_out(make, waiting, worker=worker, busy=busy)
        while busy:
            for ready in wait(list(busy)):
                worker, number = busy.pop(ready)  # type: ignore[call-overload]
                found = _received(worker, number, make)
                raise_answer(found)
                on_done(number, found.cpu_s)
                _hand_out(make, waiting, worker=worker, busy=busy)

    def __exit__(self, kind: object, *_raised: object) -> None:
        for worker in self._pool:
            worker.connection.close()  # an idle worker ends at this
            if kind is not None:
                worker.process.terminate()
        for worker in self._pool:
            worker.process.join(_PATIENCE_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._pool.clear()


def _hand_out(
    make: Make,
    waiting: list[int],
    *,
    worker: _Worker,
    busy: dict[Connection, tuple[_Worker, int]],
) -> None:
    """Gives a free worker the next unit, if there is one."""
    if not waiting:
        return
    number = waiting.pop()
    try:
        worker.connection.send((make, number))
    except OSError:
        raise _lost(worker, number, make) from None
    busy[worker.connection] = (worker, number)


def _received(worker: _Worker, number: int, make: Make) -> Answer:
    """What a worker says of its unit; MeshwrightError when it is gone instead."""
    try:
        found: Answer = worker.connection.recv()
    except (EOFError, OSError):
        raise _lost(worker, number, make) from None
    return found


def _lost(worker: _Worker, number: int, make: Make) -> MeshwrightError:
    """The error for a worker that ended before its unit did."""
    worker.process.join(_PATIENCE_S)
    code = worker.process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    stage = make.__name__.removeprefix("run_")
    return MeshwrightError(
        f"a worker process {how} while it made unit {number} of {stage}",
        hint="was the memory used up? run it again, with fewer --workers: finished units are kept",
    )


def _serve(connection: Connection, job: Job, lock: Path) -> None:
    """The life of a worker: units in, answers out, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    keep_freed()
    with held_by_worker(lock):
        while True:
            try:
                make, number = connection.recv()
                connection.send(answer(make, job, number))
            except (EOFError, OSError):
                return


def _leave_with_parent() -> None:
    """Ends this process as soon as the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
