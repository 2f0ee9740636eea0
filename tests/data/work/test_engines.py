"""What goes wrong in a worker is said here as it would have been said there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from made_stages import run_die, run_fail, run_note, run_wait, stage

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.settings import Build, Output, Source
from meshwright.data.stages.layout import Job
from meshwright.data.work.engines.answers import WorkerError
from meshwright.data.work.engines.inline import Inline
from meshwright.data.work.engines.processes import Processes
from meshwright.data.work.store import Store


@pytest.fixture
def job(tmp_path: Path) -> Job:
    build = Build(sources=(Source(files=("a",)),), output=Output(folder=str(tmp_path)))
    return Job(build=build, inputs=(), units=(), store=Store(tmp_path / "work"))


@pytest.fixture(params=["inline", "processes"])
def engine(request, job: Job, tmp_path: Path):
    return Inline(job) if request.param == "inline" else Processes(job, 2, lock=tmp_path / "lock")


def test_every_unit_once_in_processes_of_one_thread(engine, job: Job) -> None:
    before = os.environ.get("RAYON_NUM_THREADS")
    done: list[int] = []
    with engine:
        engine.run(stage(run_note), [3, 1, 2], lambda number, cpu_s: done.append(number))
        engine.run(stage(run_note), [5], lambda number, cpu_s: done.append(number))
        engine.run(stage(run_note), [], lambda number, cpu_s: done.append(number))
    assert sorted(done) == [1, 2, 3, 5]
    said = [(job.store.folder("note", n) / "who").read_text().split() for n in (1, 2, 3, 5)]
    assert {threads for _, threads in said} == {"1"}
    assert os.environ.get("RAYON_NUM_THREADS") == before


def test_errors_are_those_of_the_unit(engine) -> None:
    with engine, pytest.raises(InvalidInput) as findings:
        engine.run(stage(run_fail), [1], print)
    assert findings.value.findings[0].location == "a.jsonl:3"
    assert findings.value.hint == "mend it"


def test_other_errors_too(job: Job, tmp_path: Path) -> None:
    for number, kind, said in [
        (2, MeshwrightError, "cannot"),
        (3, PermissionError, "Permission denied"),
        (4, WorkerError, "run_fail"),
    ]:
        engine = Processes(job, 1, lock=tmp_path / "lock")
        with engine, pytest.raises(kind, match=said) as raised:
            engine.run(stage(run_fail), [number], print)
    assert isinstance(raised.value, WorkerError)


def test_a_lost_worker_is_named_with_its_unit(job: Job, tmp_path: Path) -> None:
    with (
        Processes(job, 2, lock=tmp_path / "lock") as engine,
        pytest.raises(MeshwrightError, match=r"signal 9 while it made unit 7 of die"),
    ):
        engine.run(stage(run_die), [7], print)


@pytest.fixture
def interrupt_soon():
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 1.0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_interruption_ends_the_workers_at_once(job, tmp_path: Path, interrupt_soon) -> None:
    pids: list[int] = []

    def work() -> None:
        with Processes(job, 2, lock=tmp_path / "lock") as engine:
            pids.extend(worker.process.pid for worker in engine._pool)
            interrupt_soon()
            engine.run(stage(run_wait), [1, 2], print)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not job.store.folder("note", 1).exists()  # what they were at took them a minute
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
