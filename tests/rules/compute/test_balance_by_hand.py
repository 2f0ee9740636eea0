"""Balance and micro-batch rules against counts made one by one, and against the schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.schedules import operations
from meshwright.plan.plan import Schedule
from meshwright.plan.stages import all_stage_layers
from meshwright.rules.compute.assignment import bubble
from meshwright.rules.compute.balance import imbalance
from meshwright.rules.compute.experts import tokens_per_expert
from meshwright.rules.example import build_job
from meshwright.rules.rule import as_numpy, check, find_rule

small = settings(max_examples=60, deadline=None)


def job_of(**fields: Any) -> Any:
    return as_numpy(build_job(**fields))


@small
@given(
    layers=st.integers(8, 80),
    pp=st.integers(2, 8),
    slots=st.tuples(st.booleans(), st.booleans()),
    schedule=st.sampled_from([1, 3, 5]),
)
def test_imbalance_is_the_heaviest_stage_over_the_mean(
    layers: int, pp: int, slots: tuple[bool, bool], schedule: int
) -> None:
    job = job_of(
        num_hidden_layers=layers,
        pp=pp,
        vpp=2 if schedule == 3 else 1,
        schedule=schedule,
        embedding_in_split=slots[0],
        loss_in_split=slots[1],
    )
    h, seq = 4096, 4096
    layer = 2 * (h * 6144 + h * h + 3 * h * 14336) + 2 * 32 * 256 * seq / 2
    work = [s.layers * layer + (2 * h * 128256 if s.head else 0) for s in all_stage_layers(job)]
    assert float(imbalance(job)) == pytest.approx(max(work) * pp / sum(work), rel=1e-12)


@small
@given(
    pp=st.integers(2, 6),
    rounds=st.integers(1, 4),
    schedule=st.sampled_from([Schedule.GPIPE, Schedule.ONE_F_ONE_B]),
)
def test_bubble_is_what_the_operations_leave_idle(pp: int, rounds: int, schedule: Schedule) -> None:
    micro = pp * rounds
    job = job_of(pp=pp, dp=1, global_batch_size=micro, schedule=int(schedule))
    busy = len(operations(int(schedule), pp=pp, vpp=1, num_microbatches=micro)[0])
    assert busy == 2 * micro
    assert float(bubble(job)) == pytest.approx((pp - 1) / micro)


@small
@given(
    ep=st.sampled_from([1, 2, 4, 8]), tp=st.sampled_from([1, 2, 4]), micro=st.sampled_from([1, 2])
)
def test_tokens_per_expert_by_dispatching_them(ep: int, tp: int, micro: int) -> None:
    job = job_of(
        model="mixtral-8x7b", ep=ep, tp=tp, micro_batch_size=micro, seq_len=64, num_experts=8
    )
    received = np.zeros(8)
    for rank in range(ep):  # the ranks that exchange tokens, each with its share of a sequence
        for token in range(64 * micro // tp):
            for choice in range(2):
                received[(2 * token + choice + rank) % 8] += 1
    assert float(tokens_per_expert(job, 8)) == pytest.approx(received.mean())


@pytest.mark.parametrize("micro", [1, 2, 4, 8, 16, 32])
def test_more_micro_batches_never_add_a_warning(micro: int) -> None:
    codes = ("CMP101", "CMP104", "CMP106", "CMP108", "CMP109")
    rules = [r for code in codes if (r := find_rule(code))]

    def found(size: int, **plan: Any) -> set[str]:
        return {f.code for f in check(build_job(micro_batch_size=size, **plan), rules)}

    for plan in ({"pp": 8}, {"pp": 4, "vpp": 2}, {"pp": 8, "vpp": 2, "schedule": 6}):
        assert found(micro, **plan) <= found(2 * micro, **plan)


def test_memory_rules_follow_the_device() -> None:
    """The same plan passes on a large device, warns on a tighter one and fails on a small one."""
    codes = ("MOD217", "CMP121", "CMP212")
    rules = [r for code in codes if (r := find_rule(code))]

    def found(gib: float) -> list[str]:
        return [f.code for f in check(build_job(tp=1, gpu_memory_bytes=gib * 2**30), rules)]

    assert found(200) == []
    assert found(73) == ["CMP212"]
    assert found(60) == ["CMP121"]
    assert found(30) == ["MOD217"]


@pytest.mark.parametrize("code", ["CMP120", "CMP121", "CMP212", "CMP303", "CMP319", "MOD217"])
def test_predictions_are_left_out_of_pruning(code: str) -> None:
    rule_ = find_rule(code)
    assert rule_ is not None
    assert rule_.predictive
