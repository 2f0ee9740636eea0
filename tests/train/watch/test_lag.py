"""Who is named when ranks stand still, from made-up beats."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.train.watch.heart import Beat
from meshwright.train.watch.lag import Limits, Watch

LIMITS = Limits(step_s=10.0, factor=10.0, phase_s=100.0)
IN_REDUCE = "all_reduce called at step.py:80"


def beat(rank, **changes):
    values = {"rank": rank, "pid": 100 + rank, "step": 7, "phase": "step", "median_s": 0.1}
    return Beat(**(values | {"waiting_in": IN_REDUCE} | changes))


def watched(beats, seconds, *, own=None, counted=True, stopped=(), limits=LIMITS):
    """The first hang in so many seconds of standing still, looked at every second."""
    watch = Watch(limits=limits)
    known = {b.rank: b for b in beats}
    here = {r: 100 + r for r in known} if own is None else own
    for second in range(seconds + 1):
        alive = known
        if counted:
            alive = {r: replace(b, count=b.count + second) for r, b in known.items()}
        hang = watch.look(alive, own=here, stopped=stopped, now_s=float(second))
        if hang:
            return second, hang
    return None


def test_a_step_may_take_its_limit_and_no_longer():
    assert watched([beat(0), beat(1)], 10) is None
    assert watched([beat(0), beat(1)], 12)[0] == 11


def test_long_steps_have_a_longer_limit():
    assert watched([beat(0, median_s=3.0)], 30) is None
    assert watched([beat(0, median_s=3.0)], 40)[0] == 31


def test_start_first_step_and_saving_have_the_limit_of_phases():
    for one in (beat(0, phase="saving"), beat(0, median_s=0.0), beat(0, phase="starting", step=-1)):
        assert watched([one], 100) is None
        assert watched([one], 110)[0] == 101


def test_a_stopped_process_is_given_no_more_than_a_step():
    stopped = [beat(0, phase="saving"), beat(1, phase="saving")]
    assert watched(stopped, 20, stopped=[1])[0] == 11


def test_the_rank_behind_is_named():
    _, hang = watched([beat(0), beat(1, step=6), beat(2)], 20)
    assert hang.ranks == (1,)
    assert "rank 1: at step 6" in hang.lines[1]


def test_a_rank_of_another_node_is_named_too():
    _, hang = watched([beat(0), beat(1, step=6, host="far")], 20, own={0: 100})
    assert hang.ranks == (1,)
    assert "on far" in hang.lines[1]


def test_the_rank_in_no_collective_is_named():
    _, hang = watched([beat(0), beat(1, waiting_in="at kernel.py:3"), beat(2)], 20)
    assert hang.ranks == (1,)
    assert "at kernel.py:3" in hang.lines[1]
    assert IN_REDUCE in hang.lines[0]


def test_the_rank_without_life_is_named():
    watch = Watch(limits=LIMITS)
    for second in range(20):
        beats = {0: beat(0, count=second), 1: beat(1)}
        hang = watch.look(beats, own={0: 100, 1: 101}, now_s=float(second))
        if hang:
            break
    assert hang.ranks == (1,)
    assert "no life" in hang.lines[1]


def test_a_rank_that_never_beat_is_behind():
    watch = Watch(limits=LIMITS)
    for second in range(20):
        hang = watch.look({0: beat(0, count=second)}, own={0: 100, 1: 101}, now_s=float(second))
        if hang:
            break
    assert hang.ranks == (1,)


def test_all_are_named_where_none_differs():
    assert watched([beat(0), beat(1)], 20)[1].ranks == (0, 1)


def test_a_new_process_of_a_rank_begins_anew():
    watch = Watch(limits=LIMITS)
    for second in range(30):
        pid = 100 if second < 8 else 200
        known = {0: beat(0, pid=pid, count=second)}
        assert watch.look(known, own={0: pid}, now_s=float(min(second, 16))) is None


def test_a_pause_of_the_machine_is_no_hang():
    watch = Watch(limits=LIMITS)
    known = {0: beat(0)}
    assert watch.look(known, own={0: 100}, now_s=0.0) is None
    assert watch.look(known, own={0: 100}, now_s=10_000.0) is None


def test_without_a_limit_nothing_hangs():
    never = Limits(step_s=float("inf"), phase_s=float("inf"))
    assert watched([beat(0)], 5000, limits=never) is None


@given(st.lists(st.integers(0, 5), min_size=2, max_size=6))
def test_ranks_that_make_steps_are_never_blamed(steps):
    """As long as every rank moves within the limit, whatever their order, there is no hang."""
    watch = Watch(limits=LIMITS)
    for second in range(60):
        beats = {r: beat(r, step=(second + lag) // 6, count=second) for r, lag in enumerate(steps)}
        own = {r: 100 + r for r in beats}
        assert watch.look(beats, own=own, now_s=float(second)) is None


@pytest.mark.parametrize("phase", ["starting", "loading", "saving", "evaluating"])
def test_every_phase_is_said_in_words(phase):
    _, hang = watched([beat(0, phase=phase, waiting_in="")], 120)
    assert ("its start" if phase == "starting" else f"{phase} (step 7)") in hang.lines[0]
