"""The same operation lists as torch.distributed.pipelining, where it has the schedule."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.cost.schedules import Kind, chunk_of, operations
from meshwright.plan.plan import Schedule

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

LETTER = {Kind.FORWARD: "F", Kind.BACKWARD: "I", Kind.WEIGHT: "W", Kind.FULL_BACKWARD: "B"}


def torch_lists(name, pp, vpp, num_microbatches):
    """torch's order per rank as (kind, stage, micro-batch); its classes need no process group."""
    from torch.distributed.pipelining import schedules

    cls = getattr(schedules, name)
    schedule: Any = object.__new__(cls)
    schedule.pp_group_size = pp
    schedule.n_local_stages = vpp
    schedule._n_microbatches = num_microbatches
    schedule.num_stages = schedule._num_stages = pp * vpp
    schedule.number_of_rounds = max(1, num_microbatches // pp)
    schedule.microbatches_per_round = num_microbatches // schedule.number_of_rounds
    if hasattr(cls, "_calculate_single_rank_operations"):
        lists = [schedule._calculate_single_rank_operations(rank) for rank in range(pp)]
    else:
        lists = list(schedule._get_pipeline_order().values())
    return [[flat for action in actions for flat in flatten(action)] for actions in lists]


def flatten(action):
    """An action as (kind, stage, micro-batch), both parts of an overlapped pair."""
    if action is None or action.computation_type.value == "REDUCE_GRAD":
        return []
    if action.sub_actions is not None:
        return [part for sub in action.sub_actions for part in flatten(sub)]
    return [(action.computation_type.value, action.stage_index, action.microbatch_index)]


def own_lists(schedule, pp, vpp, num_microbatches):
    def stage(rank, chunk):
        return int(chunk_of(schedule, pp=pp, vpp=vpp, rank=rank, chunk=chunk))

    lists = operations(schedule, pp=pp, vpp=vpp, num_microbatches=num_microbatches)
    return [
        [(LETTER[op.kind], stage(rank, op.chunk), op.microbatch) for op in ops]
        for rank, ops in enumerate(lists)
    ]


@pytest.mark.parametrize(
    ("schedule", "vpp", "name"),
    [
        (Schedule.GPIPE, 1, "ScheduleGPipe"),
        (Schedule.ONE_F_ONE_B, 1, "Schedule1F1B"),
        (Schedule.ONE_F_ONE_B, 2, "ScheduleInterleaved1F1B"),
        (Schedule.ONE_F_ONE_B, 4, "ScheduleInterleaved1F1B"),
        (Schedule.DUALPIPE_V, 2, "ScheduleDualPipeV"),
    ],
)
@pytest.mark.parametrize(("pp", "rounds"), [(2, 2), (4, 2), (4, 3), (8, 4)])
def test_same_order_as_torch(schedule, vpp, name, pp, rounds):
    theirs = torch_lists(name, pp, vpp, pp * rounds)
    own = own_lists(schedule, pp, vpp, pp * rounds)
    if name == "Schedule1F1B":  # its listing (not its run) numbers the last rank's forwards from 1
        own, theirs = own[:-1], theirs[:-1]
    assert own == theirs


@pytest.mark.parametrize(("pp", "num_microbatches"), [(2, 1), (2, 4), (4, 3), (4, 12), (8, 20)])
def test_zero_bubble_v_has_torchs_forwards_and_backwards(pp, num_microbatches):
    # torch places weight gradients without looking at a clock; the rest is the same
    def without_weights(lists):
        kinds = {"F": "F", "I": "I", "B": "I"}
        return [[(kinds[k], s, m) for k, s, m in ops if k != "W"] for ops in lists]

    theirs = torch_lists("ScheduleZBVZeroBubble", pp, 2, num_microbatches)
    own = own_lists(Schedule.ZB_V, pp, 2, num_microbatches)
    assert without_weights(own) == without_weights(theirs)
