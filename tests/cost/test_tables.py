"""Shared tables leave out no field of the plan that a block's cost depends on."""

from dataclasses import fields, replace

import numpy as np
import pytest

from meshwright.cost.calibration import default_calibration
from meshwright.cost.memory import memory_stack
from meshwright.cost.predict import evaluate
from meshwright.cost.tables import tables
from meshwright.model.catalogue import load
from meshwright.plan.plan import ContextParallel, Plan, Precision, Recompute, RecomputeModule
from meshwright.rules.example import build_job

CALIBRATION = default_calibration()
BASE = {
    "tp": 2,
    "pp": 2,
    "cp": 2,
    "ep": 2,
    "dp": 4,
    "micro_batch_size": 2,
    "recompute": int(Recompute.SELECTIVE),
    "recompute_modules": int(RecomputeModule.NORM),
    "zero_stage": 3,
}
OTHER = {
    "tp": 4,
    "cp": 4,
    "ep": 4,
    "context_parallel": int(ContextParallel.ULYSSES),
    "precision": int(Precision.FP8),
    "recompute": int(Recompute.FULL),
    "recompute_modules": int(RecomputeModule.MLP | RecomputeModule.MOE),
    "reshard_after_forward": False,
    "lora_rank": 16,
    "base_weight_bits": 4,
    "offload_optimizer": 0.5,
    "offload_activations": 0.5,
    "optimizer": 3,
}


def other_value(name):
    """A value of the field that is not the base's."""
    if name in OTHER:
        return OTHER[name]
    value = BASE.get(name, getattr(Plan(), name))
    return (not value) if isinstance(value, bool) else value + 1


NAMES = [f.name for f in fields(Plan) if f.name != "layout"]


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v2-lite"])
@pytest.mark.parametrize("name", NAMES)
def test_two_plans_that_differ_in_one_field(name, model):
    """As rows of one column, and as options of one row, they cost what each costs alone."""
    job = replace(build_job(**BASE), model=load(model))
    values = [getattr(job.plan, name), other_value(name)]
    alone = [evaluate(job.with_plan(job.plan.replace(**{name: v})), CALIBRATION) for v in values]
    stack = memory_stack(job.stack)
    both = job.with_plan(job.plan.replace(**{name: np.array(values), "pp": np.array([2, 2])}))
    if name == "pp":
        both = job.with_plan(job.plan.replace(pp=np.array(values)))
    shared = tables(both, CALIBRATION, stack).of(np.arange(2), np.zeros(1, dtype=np.int64))
    cost = evaluate(both, CALIBRATION, shared=shared)
    for column in ("step_s", "peak_bytes", "upper_bytes", "host_bytes"):
        found = np.broadcast_to(getattr(cost, column), 2)
        for index, one in enumerate(alone):
            assert found[index] == pytest.approx(float(getattr(one, column)), rel=1e-9), column
