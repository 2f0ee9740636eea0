"""Rules that skip the formulas of pipelines where there is none give what these would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cost.calibration import default_calibration
from meshwright.cost.schedules import bubble_share
from meshwright.cost.step import stall_s
from meshwright.plan.job import num_microbatches
from meshwright.rules.communication.stalls import hand_overs_stall
from meshwright.rules.compute.assignment import bubble
from meshwright.rules.example import build_job
from meshwright.rules.rule import as_numpy


@pytest.mark.parametrize("pp", [1, 2, 4, np.array([1, 1]), np.array([1, 2])], ids=str)
def test_one_stage_is_a_case_of_the_formulas(pp: object) -> None:
    job = build_job()
    job = as_numpy(job.with_plan(job.plan.replace(pp=pp, vpp=1)))
    share = bubble_share(
        job.plan.schedule, pp=job.plan.pp, vpp=job.plan.vpp, num_microbatches=num_microbatches(job)
    )
    assert np.allclose(bubble(job), share / (1 - share))
    for stack in ("default", "nanotron"):
        own = replace(job, stack=stack)
        stalled = stall_s(own, default_calibration().stack(stack), 0.0) > 0.05
        assert np.array_equal(
            np.broadcast_to(hand_overs_stall.condition(own), np.shape(pp)),
            np.broadcast_to(stalled, np.shape(pp)),
        )
