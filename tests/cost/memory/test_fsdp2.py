"""A stack whose sharded parameters are its master weights: widths, moments, what pipelines keep."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.cost.memory import memory
from meshwright.cost.memory.fsdp2 import habits_of, rates_under
from meshwright.cost.memory.handed import waiting_weights
from meshwright.cost.memory.moments import moments
from meshwright.cost.memory.stack import memory_stack, packaged_stacks
from meshwright.plan.plan import Plan, Recompute, Schedule

from .jobs import job, llama, routed

STACK = memory_stack("meshwright")
MASTERS = {"param_bytes": 2, "grad_bytes": 4, "reduce_bytes": 4, "master_weights": True}
GROUP = 4


def terms_of(plan: Plan, stage: int = 0, **options: object) -> dict[str, float]:
    one = job(llama(4), plan, stack="meshwright", **options)
    prefix = f"memory.stage{stage}."
    found = memory(one).terms
    return {n.removeprefix(prefix): float(v) for n, v in found.items() if n.startswith(prefix)}


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_masters_and_moments_are_sharded_under_every_stage(zero: int) -> None:
    """fp32 parameters, gradients and two moments, and bf16 copies that are gathered."""
    plan = Plan(dp=GROUP, zero_stage=zero, **MASTERS)
    rates = rates_under(job(llama(4), plan), STACK)
    assert rates.weight[0] == 4 / GROUP
    assert rates.gradient[0] == 4 / GROUP
    assert rates.optimizer[0] == 8 / GROUP
    assert rates.gathered[0] == 2


def test_replicas_hold_all_of_it() -> None:
    rates = rates_under(job(llama(4), Plan(dp=GROUP, zero_stage=0, **MASTERS)), STACK)
    assert (rates.weight[0], rates.optimizer[0], rates.gathered[0]) == (4, 8, 2)


def test_one_replica_in_one_format_needs_no_fsdp() -> None:
    plain = Plan(tp=2, param_bytes=2, grad_bytes=2, reduce_bytes=2, master_weights=False)
    habits = habits_of(job(llama(4), plain))
    assert not habits.wrapped
    rates = rates_under(job(llama(4), plain), STACK)
    assert (rates.weight[0], rates.gathered[0], rates.waiting[0]) == (2, 0, 0)


@pytest.mark.parametrize(
    ("fields", "keeps", "waits"),
    [
        ({"zero_stage": 3}, False, False),
        ({"zero_stage": 3, "reshard_after_forward": False}, True, False),
        ({"zero_stage": 2}, True, False),
        ({"zero_stage": 1}, True, True),
        ({"zero_stage": 3, "pp": 2}, False, True),
        ({"zero_stage": 3, "pp": 2, "schedule": int(Schedule.ZB_H1)}, True, True),
    ],
)
def test_what_is_kept_and_what_waits(fields: dict[str, object], keeps: bool, waits: bool) -> None:
    habits = habits_of(job(llama(4), Plan(dp=GROUP, **MASTERS, **fields)))
    assert bool(habits.keeps) == keeps
    assert bool(habits.waits) == waits


def test_gradients_wait_whole_and_the_update_reads_shards() -> None:
    once = terms_of(Plan(dp=GROUP, zero_stage=2, **MASTERS))
    waits = terms_of(Plan(dp=GROUP, zero_stage=1, **MASTERS))
    assert waits["gradients"] == pytest.approx(GROUP * once["gradients"])
    assert waits["moment.step"] == pytest.approx(once["moment.step"])


def test_the_moments_of_a_run_add_up_to_those_of_a_step() -> None:
    one = job(llama(4), Plan(dp=GROUP, pp=2, zero_stage=1, **MASTERS), stack="meshwright")
    found = {moment.name: moment for moment in moments(one).moments}
    terms = memory(one).terms
    step = found["optimizer_step"]
    assert step.device_bytes[0] == pytest.approx(float(terms["memory.stage0.moment.step"]))
    assert "master weights" not in step.terms[0]


@pytest.mark.parametrize("name", sorted(set(packaged_stacks()) - {"meshwright"}))
def test_other_stacks_have_none_of_it(name: str) -> None:
    plan = Plan(dp=2, pp=4, schedule=int(Schedule.ZB_H1))
    terms = memory(job(routed(8), plan, stack=name)).terms
    of_pipelines = ("buffers.pipeline", "buffers.waiting_weights")
    assert all(float(terms[f"memory.stage1.{part}"]) == 0 for part in of_pipelines)


def test_a_pipeline_has_buffers_for_every_micro_batch() -> None:
    """One tensor a micro-batch at either end, two between; none without a pipeline."""
    few, many = (
        [terms_of(Plan(pp=4), stage, batch=batch)["buffers.pipeline"] for stage in range(4)]
        for batch in (8, 16)
    )
    assert few[0] > 0
    assert few == [few[0], 2 * few[0], 2 * few[0], few[0]]
    assert many == pytest.approx([2 * size for size in few])
    assert terms_of(Plan())["buffers.pipeline"] == 0


def test_full_recompute_keeps_what_came_in_its_buffer() -> None:
    plan = Plan(pp=4, recompute=int(Recompute.FULL))
    first, between = (terms_of(plan, stage) for stage in (0, 1))
    one = first["activations"] / first["activations.in_flight"]
    other = between["activations"] / between["activations.in_flight"]
    assert one == pytest.approx(2 * other)  # input and output of its one block, or the output


def test_weight_gradients_wait_where_the_backward_pass_is_split() -> None:
    split = Plan(pp=4, schedule=int(Schedule.ZB_H1))
    whole = [float(waiting_weights(job(llama(4), Plan(pp=4), batch=16), r)) for r in range(4)]
    waits = [float(waiting_weights(job(llama(4), split, batch=16), r)) for r in range(4)]
    assert whole == [0, 0, 0, 0]
    assert waits[0] <= waits[1] <= waits[2] <= waits[3]
    assert waits[3] > 0
    assert terms_of(split, 0)["buffers.waiting_weights"] == 0  # whose input has no gradient
    assert terms_of(split, 2)["buffers.waiting_weights"] > 0


def test_a_column_of_plans_is_as_its_rows() -> None:
    schedules = np.array([int(Schedule.ONE_F_ONE_B), int(Schedule.ZB_H1), int(Schedule.GPIPE)])
    zero = np.array([1, 2, 3])
    column = Plan(pp=np.array([4, 4, 4]), dp=2, schedule=schedules, zero_stage=zero, **MASTERS)
    together = memory(job(llama(4), column, stack="meshwright")).peak_bytes
    alone = [
        float(
            memory(
                job(
                    llama(4),
                    Plan(pp=4, dp=2, schedule=int(s), zero_stage=int(z), **MASTERS),
                    stack="meshwright",
                )
            ).peak_bytes
        )
        for s, z in zip(schedules, zero, strict=True)
    ]
    assert together == pytest.approx(alone)
