"""The simulation itself, against a slow reference and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.cost.schedules import Kind, Operation, definition_of, operations
from meshwright.cost.timeline import (
    Durations,
    peak_in_flight,
    simulate,
    uniform_durations,
)
from meshwright.plan.plan import Schedule

F, B, W, FULL = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT, Kind.FULL_BACKWARD


def slow_ends(lists, seconds, p2p_s):
    """End of every operation of a looped pipeline, by repeating until nothing changes."""
    pp, chunks, _ = seconds.shape
    last = pp * chunks - 1
    ends = {(r, op.kind, op.microbatch, op.chunk): 0.0 for r, ops in enumerate(lists) for op in ops}

    def input_s(rank, kind, microbatch, chunk):
        stage = chunk * pp + rank
        if kind == F:
            source = None if stage == 0 else (stage - 1, F)
        else:
            source = (stage, F) if stage == last else (stage + 1, FULL)
        if source is None:
            return 0.0
        other = source[0] % pp
        arrival = ends[other, source[1], microbatch, source[0] // pp]
        return arrival + (p2p_s if other != rank else 0.0)

    for _ in range(len(ends)):
        before = dict(ends)
        for rank, ops in enumerate(lists):
            clock = 0.0
            for op in ops:
                took = (
                    seconds[rank, op.chunk, 0]
                    if op.kind == F
                    else seconds[rank, op.chunk, 1:].sum()
                )
                clock = max(clock, input_s(rank, op.kind, op.microbatch, op.chunk)) + took
                ends[rank, op.kind, op.microbatch, op.chunk] = clock
        if ends == before:
            return ends
    raise AssertionError("no fixed point")


@pytest.mark.parametrize(("pp", "vpp", "m"), [(1, 1, 3), (3, 1, 5), (4, 2, 8), (2, 3, 4)])
def test_equals_a_fixed_point_of_the_dependencies(pp, vpp, m):
    random = np.random.default_rng(pp * vpp * m)
    seconds = random.uniform(0.5, 2.0, (pp, vpp, 3))
    lists = operations(Schedule.ONE_F_ONE_B, pp=pp, vpp=vpp, num_microbatches=m)
    timeline = simulate(lists, Durations(seconds=seconds, p2p_s=0.1))
    expected = slow_ends(lists, seconds, 0.1)
    for rank, ops in enumerate(lists):
        for end, op in zip(timeline.end_s[rank], ops, strict=True):
            assert end == pytest.approx(expected[rank, op.kind, op.microbatch, op.chunk])


def test_two_ranks_by_hand():
    lists = operations(Schedule.ONE_F_ONE_B, pp=2, num_microbatches=2)
    seconds = uniform_durations(2, 1, forward_s=1.0, backward_s=1.0, weight_s=1.0)
    timeline = simulate(lists, Durations(seconds=seconds))
    # rank 0: F0 F1 . B0 . B1; rank 1 starts one later and never waits again
    np.testing.assert_array_equal(timeline.start_s[0], [0, 1, 4, 7])
    np.testing.assert_array_equal(timeline.start_s[1], [1, 2, 4, 5])
    assert timeline.makespan_s == 9
    np.testing.assert_array_equal(timeline.bubble_s, [3, 3])
    np.testing.assert_array_equal(peak_in_flight(lists), [2, 1])


def test_blocking_transfers_hold_the_sender():
    lists = [[Operation(F, 0, 0), Operation(F, 1, 0)], [Operation(F, 0, 0), Operation(F, 1, 0)]]
    seconds = uniform_durations(2, 1, forward_s=1.0, backward_s=1.0)
    free = simulate(lists, Durations(seconds=seconds, p2p_s=0.5))
    blocked = simulate(lists, Durations(seconds=seconds, p2p_s=0.5, overlapped=False))
    np.testing.assert_allclose(free.start_s[0], [0, 1.0])
    np.testing.assert_allclose(blocked.start_s[0], [0, 1.5])
    np.testing.assert_allclose(blocked.start_s[1], [1.5, 3.0])
    assert blocked.busy_s[0] == 2.0  # waiting for a transfer is not computing


def test_start_and_extra_time():
    lists = operations(Schedule.GPIPE, pp=1, num_microbatches=2)
    seconds = uniform_durations(1, 1, forward_s=1.0, backward_s=2.0)
    durations = Durations(seconds=seconds, start_s=np.array([0.25]), extra_s={(0, 1): 0.5})
    timeline = simulate(lists, durations)
    np.testing.assert_allclose(timeline.start_s[0], [0.25, 1.25, 2.75, 4.75])
    assert timeline.makespan_s == 6.75


def test_joined_operations_wait_for_each_other():
    pair = [Operation(F, 1, 0, joined=True), Operation(FULL, 0, 0)]
    lists = [
        [Operation(F, 0, 0), *pair, Operation(FULL, 1, 0)],
        [*[Operation(F, 0, 0)], Operation(FULL, 0, 0), Operation(F, 1, 0), Operation(FULL, 1, 0)],
    ]
    seconds = uniform_durations(2, 1, forward_s=1.0, backward_s=1.0)
    timeline = simulate(lists, Durations(seconds=seconds))
    # F1 could run at 1, but starts with B0, whose gradient comes at 3; rank 1 gets F1 at 5
    np.testing.assert_allclose(timeline.start_s[0], [0, 3, 4, 7])
    np.testing.assert_allclose(timeline.start_s[1], [1, 2, 5, 6])


def test_a_circle_is_an_error_that_names_the_operation():
    lists = [[Operation(FULL, 0, 0), Operation(F, 0, 0)]]
    with pytest.raises(MeshwrightError, match="full_backward of micro-batch 0, chunk 0"):
        simulate(lists, Durations(seconds=uniform_durations(1, 1, forward_s=1, backward_s=1)))


def test_an_empty_schedule_takes_no_time():
    seconds = uniform_durations(2, 1, forward_s=1, backward_s=1)
    assert simulate([[], []], Durations(seconds=seconds)).makespan_s == 0.0


def test_a_large_plan_is_quick(assert_linear):
    seconds = uniform_durations(16, 8, forward_s=1.0, backward_s=1.0, weight_s=1.0)

    def simulating(num_microbatches):
        lists = operations(Schedule.ONE_F_ONE_B, pp=16, vpp=8, num_microbatches=num_microbatches)

        def simulated():
            timeline = simulate(lists, Durations(seconds=seconds))
            assert timeline.makespan_s == num_microbatches * 8 * 3 + 15 * 3

        return simulated

    assert_linear(simulating, 256, limit_s=5)  # 65,536 operations: 0.2 where nothing else runs


def test_split_backward_lets_the_gradient_leave_early():
    split = [[Operation(F, 0, 0), Operation(B, 0, 0), Operation(W, 0, 0)] for _ in range(2)]
    seconds = uniform_durations(2, 1, forward_s=1.0, backward_s=1.0, weight_s=5.0)
    assert simulate(split, Durations(seconds=seconds)).makespan_s == 9.0
    whole = [[Operation(F, 0, 0), Operation(FULL, 0, 0)] for _ in range(2)]
    assert simulate(whole, Durations(seconds=seconds)).makespan_s == 14.0


def test_v_placement_turns_without_a_transfer():
    definition = definition_of(Schedule.ZB_V, vpp=2)
    lists = operations(Schedule.ZB_V, pp=2, vpp=2, num_microbatches=1)
    seconds = uniform_durations(2, 2, forward_s=1.0, backward_s=1.0, weight_s=1.0)
    timeline = simulate(
        lists, Durations(seconds=seconds, p2p_s=0.5), placement=definition.placement
    )
    # down, turn on rank 1, up, and back again: four stages twice, two transfers each way, one W
    assert timeline.makespan_s == 4 + 4 + 4 * 0.5 + 1
