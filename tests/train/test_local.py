"""Forked ranks: results by rank, and every way in which one can fail."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

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
