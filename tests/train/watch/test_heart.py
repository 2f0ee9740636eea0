"""Beats in files: what they say, and that nothing that happens to the disk reaches the rank."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from meshwright.train.watch import stacks
from meshwright.train.watch.heart import STEP, VARIABLE, Heart, beats_in
from meshwright.train.watch.stacks import collective_of, waiting_in


@pytest.fixture
def heart(tmp_path):
    one = Heart(tmp_path, rank=3)
    yield one
    one.stop()


def only(folder):
    (beat,) = beats_in(folder).values()
    return beat


def test_a_heart_beats_from_its_start(heart, tmp_path):
    assert (only(tmp_path).rank, only(tmp_path).phase, only(tmp_path).step) == (3, "starting", -1)


def test_steps_and_phases_are_told_at_once(heart, tmp_path):
    heart.step(8)
    assert (only(tmp_path).step, only(tmp_path).phase) == (8, STEP)
    with heart.phase("saving"):
        assert only(tmp_path).phase == "saving"
    assert only(tmp_path).phase == STEP


def test_the_median_is_of_steps_alone(heart, tmp_path):
    for step in range(5):
        heart.step(step)
        time.sleep(0.01)
    with heart.phase("saving"):
        time.sleep(0.8)
    heart.step(6)
    with heart.phase("evaluating"):
        assert 0.01 <= only(tmp_path).median_s < 0.8


def test_it_goes_on_beating_while_its_rank_is_busy(heart, tmp_path):
    heart.step(1)
    wanted = only(tmp_path).count + 2
    end_s = time.monotonic() + 30
    while only(tmp_path).count < wanted and time.monotonic() < end_s:
        time.sleep(0.05)
    assert only(tmp_path).count >= wanted


def test_beats_never_grow_their_file(heart, tmp_path):
    sizes = set()
    for step in range(3):
        heart.step(10**step)
        sizes.add((tmp_path / "rank-3").stat().st_size)
        time.sleep(0.11)
    assert len(sizes) == 1


def test_a_heart_without_a_folder_beats_for_nobody(tmp_path):
    heart = Heart.here({"RANK": "1"})
    heart.step(1)
    with heart.phase("saving"):
        pass
    assert Heart.here({VARIABLE: str(tmp_path), "RANK": "5"}) is not heart
    assert beats_in(tmp_path)[5].rank == 5


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path):
    (tmp_path / "file").write_text("")
    Heart(tmp_path / "file", rank=0).step(1)


def test_half_a_beat_is_left_out(tmp_path, heart):
    (tmp_path / "rank-7").write_bytes(b'{"rank": 7, "pi')
    (tmp_path / "rank-8").write_bytes(b"\xff\x00")
    assert set(beats_in(tmp_path)) == {3}


def named_like_torch(source, name, *, file="/x/site-packages/torch/distributed/c10d.py"):
    """A function that seems to come from torch."""
    scope = {}
    exec(compile(source, file, "exec"), scope)
    return scope[name]


def test_the_collective_and_its_caller_are_found_in_a_stack():
    all_reduce = named_like_torch(
        "def all_reduce(look):\n    return wait(look)\ndef wait(look):\n    return look()",
        "all_reduce",
    )
    found = all_reduce(lambda: collective_of(sys._getframe().f_back))
    assert found.startswith("all_reduce called at test_heart.py:")


def test_a_stack_without_a_collective_says_where_it_is():
    assert waiting_in(threading.get_ident()).startswith("at ")
    assert collective_of(sys._getframe()) == ""


def test_another_thread_may_be_the_one_that_waits():
    all_gather = named_like_torch("def all_gather(go):\n    go.wait(5)", "all_gather")
    go = threading.Event()
    thread = threading.Thread(target=lambda: all_gather(go))
    thread.start()
    time.sleep(0.1)
    try:
        assert waiting_in(threading.get_ident()).startswith("all_gather called at test_heart.py")
    finally:
        go.set()
        thread.join()
    assert stacks.COLLECTIVES
