"""Generated runs, held against the meetings that were played."""

from __future__ import annotations

import numpy as np
import pytest

from making import Spec, simulate
from making.layout import written
from meshwright.diagnose.across.join import across
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.read import read_trace

SMALL = {"layers": 2, "micro_batches": 2, "vocab": 512}


def made(tmp_path, **given):
    spec = Spec(**(SMALL | given))
    run = simulate(spec)
    ranks = []
    for number, machine in enumerate(run.machines):
        path = tmp_path / f"{number}.json"
        path.write_bytes(written(spec, machine))
        ranks.append(rank_of(read_trace(path)))
    return run, ranks


@pytest.mark.parametrize("era", ["2024-05", "2024-07", "2026"])
@pytest.mark.parametrize("given", [{"dp": 4, "tp": 2}, {"dp": 2, "pp": 2, "tp": 2}])
def test_every_meeting_is_found(tmp_path, era, given):
    run, ranks = made(tmp_path, era=era, slow_rank=1, **given)
    found = across(ranks)
    assert (found.matched, found.unmatched) == (len(run.meetings), 0)
    assert found.straggler_rank == 1


def test_hosts_with_clocks_of_their_own(tmp_path):
    shifts = (0.0, 4321.0, -15_000.0)
    given = {"dp": 12, "tp": 2, "slow_rank": 3}
    _, plain = made(tmp_path, **given)
    _, moved = made(tmp_path, clock_shift_us=shifts, **given)
    straight, found = across(plain), across(moved)
    assert straight.clock_shift_us == (0.0,) * 24
    np.testing.assert_allclose(found.clock_shift_us, np.repeat(shifts, 8), atol=3.0)
    np.testing.assert_allclose(found.wait_us_by_rank, straight.wait_us_by_rank, rtol=0.01, atol=50)
    assert found.straggler_rank == straight.straggler_rank == 3


def test_axes_add_up_to_all_communication(tmp_path):
    _, ranks = made(tmp_path, dp=4, tp=2)
    found = across(ranks)
    total = sum(a.total_us for a in found.axes) * 3 * 8
    assert total == pytest.approx(sum(found.nccl_total_us_by_rank), rel=0.01)
    for axis in found.axes:
        assert axis.wait_us + axis.transfer_us == pytest.approx(axis.total_us)
    assert {a.axis for a in found.axes} == {"dp", "tp", "world"}


def test_experts_that_work_more_than_others(tmp_path):
    _, even = made(tmp_path, dp=4, ep=4, experts=8)
    _, uneven = made(tmp_path, dp=4, ep=4, experts=8, expert_imbalance=1.8)
    assert across(even).imbalance["expert"] < 1.05
    found = across(uneven)
    assert found.imbalance["expert"] > 1.2
    assert found.straggler_rank == 0


def test_sequences_of_uneven_length(tmp_path):
    _, even = made(tmp_path, dp=4, steps=5)
    _, uneven = made(tmp_path, dp=4, steps=5, sequence_imbalance=0.6)
    assert across(even).imbalance["sequence"] < 1.005
    found = across(uneven)
    assert found.imbalance["sequence"] > 1.02
    assert found.step_variation > across(even).step_variation


def test_a_slow_link_between_two_ranks(tmp_path):
    _, ranks = made(tmp_path, dp=4, tp=2, slow_axis="tp", slow_axis_rank=3)
    found = across(ranks)
    slow = [link for link in found.links if link.slow]
    assert {link.ranks for link in slow} == {(2, 3)}
    assert {link.axis for link in slow} == {"tp"}
    assert slow[0].busbw_GBps == pytest.approx(450.0 / 6, rel=0.3)
