"""Parts of one build: they wait for each other, and notice when one fails or dies."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from made_stages import run_note, stage

from meshwright.base.errors import MeshwrightError
from meshwright.data.settings import Build, Output, Source
from meshwright.data.stages.layout import Job
from meshwright.data.work import board as board_module
from meshwright.data.work.board import Board
from meshwright.data.work.engines.array import Array
from meshwright.data.work.engines.inline import Inline
from meshwright.data.work.part import UNKNOWN, Part, Run
from meshwright.data.work.store import Store


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "BEAT_S", 0.05)
    monkeypatch.setattr(board_module, "SILENCE_S", 2.0)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    build = Build(sources=(Source(files=("a",)),), output=Output(folder=str(tmp_path)))
    return Job(build=build, inputs=(), units=(), store=Store(tmp_path / "work"))


def part_of(job: Job, number: int, *, patience_s: float = 60.0, run: Run = UNKNOWN) -> Array:
    board = Board(job.store.root / "parts", Part(number, 3), "k", patience_s=patience_s, run=run)
    return Array(job, Inline(job), board, is_finished=lambda: False)


def run_part(array: Array, done: list[int], errors: list[BaseException]) -> None:
    try:
        with array:
            array.run(stage(run_note), range(7), lambda number, _: done.append(number))
    except MeshwrightError as error:
        errors.append(error)


def started(array: Array) -> tuple[threading.Thread, list[int], list[BaseException]]:
    done, errors = list[int](), list[BaseException]()
    thread = threading.Thread(target=run_part, args=(array, done, errors))
    thread.start()
    return thread, done, errors


def wait_for(job: Job, number: int) -> None:
    """Until the part has begun, and knows what earlier runs left."""
    file, deadline = job.store.root / "parts" / f"{number:05}.json", time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_part_hears_of_every_unit_and_each_is_made_once(job: Job) -> None:
    parts = []
    for number in (2, 0, 1):
        parts.append(started(part_of(job, number)))
        time.sleep(0.2)
    for thread, done, errors in parts:
        thread.join(60)
        assert errors == []
        assert sorted(done) == list(range(7))


def test_a_part_that_never_begins_is_named(job: Job) -> None:
    thread, _, errors = started(part_of(job, 0, patience_s=0.5))
    thread.join(60)
    (error,) = errors
    assert "part 1 of 3 has given no sign of life" in str(error)
    assert "unit 1 of note" in str(error)
    assert "--part 1/3" in error.hint


def test_a_part_that_died_is_noticed_long_before_patience_ends(job: Job) -> None:
    folder = job.store.root / "parts"
    first = part_of(job, 0, patience_s=1000.0)
    thread, _, errors = started(first)
    wait_for(job, 0)
    with Board(folder, Part(1, 3), "k", patience_s=1.0):
        time.sleep(0.2)
        alive = (folder / "00001.json").read_text()
    with Board(folder, Part(2, 3), "k", patience_s=1.0):
        (folder / "00001.json").write_text(alive)  # as if it had been killed then
        thread.join(60)
    (error,) = errors
    assert "part 1 of 3 has given no sign of life" in str(error)


def test_a_part_that_fails_stops_the_others_with_its_error(job: Job) -> None:
    thread, _, errors = started(part_of(job, 0))
    wait_for(job, 0)
    with (
        pytest.raises(MeshwrightError),
        Board(job.store.root / "parts", Part(1, 3), "k", patience_s=1.0),
    ):
        raise MeshwrightError("raw/b.jsonl: cannot be read")
    thread.join(60)
    assert "part 1 of 3 failed: raw/b.jsonl: cannot be read" in str(errors[0])


def test_a_part_whose_workers_cannot_start_says_so_and_lives_no_longer(job: Job) -> None:
    class Broken(Inline):
        def __enter__(self) -> Broken:
            raise MeshwrightError("no ray")

    array = part_of(job, 1)
    array.engine = Broken(job)
    with pytest.raises(MeshwrightError, match="no ray"):
        array.__enter__()
    told = json.loads((job.store.root / "parts" / "00001.json").read_text())
    assert told["error"] == "no ray"
    assert not array.board._beat.is_alive()


def test_an_error_of_an_earlier_run_is_forgotten(job: Job) -> None:
    with (
        pytest.raises(MeshwrightError),
        Board(job.store.root / "parts", Part(1, 3), "k", patience_s=1.0),
    ):
        raise MeshwrightError("of yesterday")
    parts = [started(part_of(job, number)) for number in (0, 2)]
    wait_for(job, 0)
    wait_for(job, 2)
    time.sleep(0.3)
    parts.append(started(part_of(job, 1)))
    for thread, done, errors in parts:
        thread.join(60)
        assert errors == []
        assert sorted(done) == list(range(7))


@pytest.mark.parametrize(
    ("failed", "later", "is_refused"),
    [
        (Run("7"), Run("7"), True),
        (Run("7"), Run("8"), False),
        (Run("7"), Run("7", 1), False),  # Slurm began the tasks anew
        (Run("7", 1), Run("7"), True),
        (Run(), Run(), False),
    ],
)
def test_a_part_that_failed_before_another_began_stops_it_in_the_same_run(
    job: Job, failed: Run, later: Run, is_refused: bool
) -> None:
    folder = job.store.root / "parts"
    with (
        pytest.raises(MeshwrightError),
        Board(folder, Part(1, 3), "k", patience_s=1.0, run=failed),
    ):
        raise MeshwrightError("no space left")
    with Board(folder, Part(0, 3), "k", patience_s=60.0, run=later) as board:
        if is_refused:
            with pytest.raises(MeshwrightError, match="part 1 of 3 failed: no space left"):
                board.check(1, "unit 1 of note")
        else:
            board.check(1, "unit 1 of note")


def test_a_part_with_other_settings_is_refused(job: Job) -> None:
    folder = job.store.root / "parts"
    with (
        Board(folder, Part(0, 3), "k", patience_s=1.0) as board,
        Board(folder, Part(1, 3), "other", patience_s=1.0),
        pytest.raises(MeshwrightError, match="has other settings or sees other input"),
    ):
        board.check(1, "unit 1 of note")
