"""Collectives matched over ranks: waits, clocks, lost events."""

from __future__ import annotations

import numpy as np
import pytest

from jobs import Job, compute, grid, group_of, meet, named, play
from meshwright.diagnose.across.join import across

GROUPS = grid(16, [("tp", 4), ("dp", 4)])


def regular(*, layers=6, steps=3, slow=(), extra_us=500.0, **given):
    """16 ranks, tp 4 and dp 4: every layer meets in tp, every step ends in dp."""

    def rank(r):
        work = 300.0 + (extra_us if r in slow else 0.0)
        inner = [
            op for _ in range(layers) for op in (compute(work), meet(group_of(GROUPS, "tp", r)))
        ]
        return [*inner, meet(group_of(GROUPS, "dp", r), 400.0)]

    program = [[rank(r) for r in range(16)] for _ in range(steps)]
    return Job(world=16, groups=named(GROUPS), steps=program, **given)


def test_fewer_than_two_ranks_say_nothing():
    ranks = play(regular())
    assert across(ranks[:1]) is None
    assert across([]) is None


def test_waits_and_transfers_of_one_slow_rank():
    found = across(play(regular(slow=(5,))))
    assert found.matched == 3 * (6 * 4 + 4)
    assert found.unmatched == 0
    tp_mates = {4, 6, 7}
    for rank, wait in zip(found.ranks, found.wait_us_by_rank, strict=True):
        layers = 3 * 6 * 500.0
        assert wait == pytest.approx(0.0 if rank == 5 else layers, abs=1.0), rank
    assert {m.last_rank for m in found.collectives if m.group == "tp1"} == {5}
    assert found.straggler_rank == 5
    assert tp_mates < set(found.ranks)
    assert found.transfer_us_sum_of_min == pytest.approx(3 * (24 * 100.0 + 4 * 400.0))


def test_lanes_are_told_apart_by_stream_and_time_where_messages_are_missing():
    shown = across(play(regular(slow=(5,), messages=False)))
    assert shown.unmatched == 0
    assert shown.wait_us_by_rank[5] == pytest.approx(0.0, abs=1.0)
    assert shown.wait_us_by_rank[6] == pytest.approx(9000.0, abs=1.0)


@pytest.mark.parametrize("numbers", [True, False])
def test_clocks_of_two_hosts_are_aligned(numbers):
    shift = {r: 3_700.0 + 2.0 * (r % 3) for r in range(8, 16)}
    hosts = {r: "a" if r < 8 else "b" for r in range(16)}
    job = regular(slow=(5,), shift_us=shift, hosts=hosts, numbers=numbers, jitter_us=4.0)
    found, plain = across(play(job)), across(play(regular(slow=(5,), jitter_us=4.0)))
    np.testing.assert_allclose(found.wait_us_by_rank, plain.wait_us_by_rank, atol=20 * 6.0)
    assert found.clock_shift_us[0] == 0.0
    assert found.clock_shift_us[12] == pytest.approx(3702.0, abs=8.0)
    assert found.clock_residual_us < 10.0


def test_one_clock_is_left_alone():
    hosts = dict.fromkeys(range(16), "a")
    found = across(play(regular(slow=(5,), hosts=hosts, jitter_us=4.0)))
    assert set(found.clock_shift_us) == {0.0}


@pytest.mark.parametrize("messages", [True, False])
def test_a_head_that_was_cut_off_shifts_nothing(messages):
    lost = {(6, i) for i in range(5)} | {(7, 9)}
    job = regular(slow=(5,), lost=lost, messages=messages)
    found = across(play(job))
    assert found.wait_us_by_rank[4] == pytest.approx(9000.0, abs=1.0)
    assert found.wait_us_by_rank[6] == pytest.approx(9000.0 - 5 * 500.0, abs=1.0)
    assert found.wait_us_by_rank[7] == pytest.approx(8500.0, abs=1.0)


def test_a_cut_head_on_another_clock():
    lost = {(r, i) for r in (12, 13, 14) for i in range(r - 8)}
    hosts = {r: "a" if r < 8 else "b" for r in range(16)}
    shift = dict.fromkeys(range(8, 16), -21_000.0)
    job = regular(slow=(5,), lost=lost, shift_us=shift, hosts=hosts, jitter_us=2.0)
    found = across(play(job))
    assert found.clock_shift_us[15] == pytest.approx(-21_000.0, abs=5.0)
    assert found.wait_us_by_rank[15] == pytest.approx(9000.0, abs=60.0)


def test_groups_of_equal_members_stay_apart():
    twice = {"a": (0, 1), "b": (0, 1)}
    program = [
        [
            [compute(100.0 + 50 * r), meet("a"), compute(10.0 + 200 * (1 - r)), meet("b")]
            for r in (0, 1)
        ]
    ]
    found = across(play(Job(world=2, groups=twice, steps=program * 2)))
    assert found.matched == 4
    assert [(m.group, m.last_rank) for m in found.collectives] == [("a", 1), ("b", 0)] * 2


def test_hosts_that_share_no_collective_are_told_and_not_guessed():
    groups = {"a": (0, 1), "b": (2, 3)}
    program = [[[compute(100.0 + 10 * r), meet("ab"[r // 2])] for r in range(4)]] * 4
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    shift = {2: 5_000.0, 3: 5_000.0}
    found = across(play(Job(world=4, groups=groups, steps=program, hosts=hosts, shift_us=shift)))
    assert found.unaligned == (2, 3)
    assert "not aligned" in found.left[0].what
    np.testing.assert_allclose(found.wait_us_by_rank, (40.0, 0.0, 40.0, 0.0), atol=1.0)


def test_files_that_count_from_their_own_beginning():
    """Hours between clocks, and no host is named."""
    shift = {r: 3.6e9 * r for r in range(16)}
    found = across(play(regular(slow=(5,), shift_us=shift, jitter_us=2.0)))
    assert found.clock_shift_us[9] - found.clock_shift_us[0] == pytest.approx(9 * 3.6e9, abs=5.0)
    assert found.wait_us_by_rank[6] == pytest.approx(9000.0, abs=60.0)
    assert found.straggler_rank == 5
