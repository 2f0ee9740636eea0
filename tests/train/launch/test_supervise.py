"""Real ranks on gloo that are killed, frozen and stopped, and what the supervisor makes of it."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from meshwright.train.launch import event
from meshwright.train.launch.codes import DONE
from meshwright.train.launch.local import supervise
from meshwright.train.launch.processes import alive

pytest.importorskip("torch")

HERE = Path(__file__).parent


class Told:
    """Events as they come, and every process that was ever a rank."""

    def __init__(self):
        self.events = []
        self.pids = set()

    def __call__(self, happened):
        self.events.append(happened)
        self.pids |= set(happened.pids.values())

    def of(self, kind):
        return [e for e in self.events if e.kind == kind]


def run(folder, *arguments, told=None, ranks=2, **options):
    told = told if told is not None else Told()
    code = supervise(
        ["made_worker", str(folder), *map(str, arguments)],
        ranks_per_node=ranks,
        log_folder=folder / "logs",
        environment={"PYTHONPATH": str(HERE)},
        on_event=told,
        **options,
    )
    assert not [pid for pid in told.pids if alive(pid)]
    return code, told


def steps_done(folder):
    notes = (folder / "notes").read_text().split("\n")
    return Counter(int(line.split()[1]) for line in notes if line.count(" ") == 2)


def test_ranks_that_go_well_are_started_once(tmp_path):
    code, told = run(tmp_path, 3)
    assert code == DONE
    assert steps_done(tmp_path) == {0: 1, 1: 1, 2: 1}
    assert not told.of(event.RESTARTING)
    assert "done" in "".join(e.text for e in told.of(event.LINE))


def test_a_killed_rank_is_named_and_the_run_goes_on(tmp_path):
    code, told = run(tmp_path, 6, "kill:1:3")
    assert code == DONE
    assert steps_done(tmp_path) == dict.fromkeys(range(6), 1)
    (failed,) = told.of(event.FAILED)
    assert (failed.rank, failed.code) == (1, -signal.SIGKILL)
    (again,) = told.of(event.RESTARTING)
    assert again.attempt == 1
    assert (tmp_path / "logs/attempt-1/rank-1.log").exists()


def test_a_killed_agent_takes_its_ranks_along_and_is_replaced(tmp_path):
    code, told = run(tmp_path, 6, "kill-agent:1:3")
    assert code == DONE
    assert set(steps_done(tmp_path)) == set(range(6))
    (lost,) = told.of(event.AGENT_LOST)
    assert lost.code == -signal.SIGKILL
