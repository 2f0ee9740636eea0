"""Random plans: exact on their ranks, or refused before torch is needed.

MESHWRIGHT_SEED=1000 draws others; a seed that fails is the number in the test's name.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from training_draws import Drawn, draw, errors, job_of

from meshwright.plan.plan import Optimizer, Plan, Schedule

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.parity]

FIRST = int(os.environ.get("MESHWRIGHT_SEED", "0"))
FEW, MANY = 40, 700  # seeds; about a third of the plans are legal
TOLERANCE = 1e-9
STEPS = 2


EMPTY = {
    "a stage of nothing": Plan(pp=3, schedule=Schedule.GPIPE, layout=(1, 0, 1), zero_stage=3),
    "a stage that is frozen": Plan(pp=2, schedule=Schedule.GPIPE, layout=(2, 0), lora_rank=3),
}


@pytest.mark.parametrize("kind", [Optimizer.ADAM, Optimizer.SGD_MOMENTUM])
@pytest.mark.parametrize("case", EMPTY)
def test_a_rank_need_not_train_anything(case: str, kind: Optimizer) -> None:
    plan = EMPTY[case].replace(optimizer=int(kind))
    if int(plan.lora_rank):
        pytest.importorskip("peft")
    drawn = Drawn("llama", {"layers": 2}, 16, 4, plan)
    config, job = job_of(drawn)
    assert not errors(job)
    assert max(_worst(config, job, ranks=drawn.ranks).values()) <= TOLERANCE


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(FIRST, FIRST + MANY))
def test_a_random_plan_is_exact_or_refused(seed: int) -> None:
    drawn = draw(Random(seed))
    config, job = job_of(drawn)
    found = errors(job)
    if found:
        assert all(finding.hint or finding.reason for finding in found)
        return
    worst = _worst(config, job, ranks=drawn.ranks)
    beyond = {name: error for name, error in worst.items() if not error <= TOLERANCE}
    assert not beyond, drawn


def test_random_plans_are_refused_or_not_but_never_crash_a_rule() -> None:
    told = [errors(job_of(draw(Random(seed)))[1]) for seed in range(FEW)]
    assert 0 < sum(not found for found in told) < FEW


def _worst(config: Any, job: Any, *, ranks: int) -> dict[str, float]:
    """The worst relative error by name: loss, norm, gradients and parameters after the steps."""
    from meshwright.train.local import run_ranks
    from meshwright.train.verify.comparing import compare
    from meshwright.train.verify.reference import batches, reference

    work = job.workload
    data = batches(config, rows=work.global_batch_size, seq_len=work.seq_len, steps=STEPS)
    expected = reference(config, data, seed=0, clip_norm=0.5, plan=job.plan)
    found = run_ranks(
        lambda: compare(config, job.plan, data, expected, seed=0, clip_norm=0.5), ranks
    )
    worst: dict[str, float] = {}
    for rank in found:
        assert not rank.missing
        told = {"loss": max(rank.losses), "norm": max(rank.norms), **rank.gradients}
        told |= {f"{name} (after the steps)": error for name, error in rank.parameters.items()}
        for name, error in told.items():
            worst[name] = max(worst.get(name, 0.0), error)
    return worst
