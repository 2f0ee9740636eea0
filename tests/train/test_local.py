"""Forked ranks: results by rank, and every way in which one can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from meshwright.train.launch.processes import gone_within
from meshwright.train.local import RankFailed, run_ranks

dist = pytest.importorskip("torch.distributed")


def test_results_come_back_by_rank() -> None:
    def sum_of_ranks(start: int) -> tuple[int, int]:
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, dist.get_rank() + start)
        return dist.get_rank(), sum(everyone)

    assert run_ranks(sum_of_ranks, 3, 10) == [(0, 33), (1, 33), (2, 33)]


def test_the_rank_that_raised_is_named_not_those_that_lost_it() -> None:
    def one_raises() -> None:
        if dist.get_rank() == 1:
            raise ValueError("no such thing")
        dist.barrier()

    with pytest.raises(RankFailed, match="rank 1 raised ValueError: no such thing") as failure:
        run_ranks(one_raises, 2)
    assert "one_raises" in failure.value.detail


def test_a_rank_that_is_killed_is_told() -> None:
    def one_dies() -> None:
        if dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(RankFailed, match=r"rank 0 ended with exit code -9"):
        run_ranks(one_dies, 2)


def test_a_rank_that_hangs_is_ended() -> None:
    def one_sleeps() -> int:
        if dist.get_rank() == 1:
            time.sleep(600)
        return os.getpid()

    with pytest.raises(RankFailed, match="rank 1 did not answer"):
        run_ranks(one_sleeps, 2, timeout_s=3)


def test_ranks_end_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from meshwright.train.local import run_ranks\n"
        "def rank(folder):\n"
        "    (Path(folder) / str(os.getpid())).touch()\n"
        "    time.sleep(300)\n"
        "run_ranks(rank, 2, sys.argv[1])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    end_s = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end_s:
        time.sleep(0.1)
    pids = [int(path.name) for path in tmp_path.iterdir()]
    process.kill()
    process.wait()
    assert len(pids) == 2
    assert gone_within([(pid, "") for pid in pids], 5.0)
