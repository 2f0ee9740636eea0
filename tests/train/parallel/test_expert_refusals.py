"""Which ranks experts can be spread over is told before torch is imported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import api
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan
from meshwright.train.refusals import refusals

MODEL = api.load_model("qwen3-30b-a3b")
POWERS = st.sampled_from([1, 2, 4, 8])


def found(**plan: int) -> list[str]:
    """Hints of the refusals that blame ep."""
    axes = Plan(**plan)
    cluster = api.cluster("H100:8", nodes=max(int(axes.dp * axes.cp * axes.tp) // 8, 1))
    workload = api.workload(seq_len=4096, global_batch=512, train_tokens="1B")
    job = Job(model=MODEL, cluster=cluster, workload=workload, plan=axes)
    return [finding.hint for finding in refusals(job) if finding.key == "plan.ep"]


@pytest.mark.parametrize(
    ("axes", "hints"),
    [
        ({"dp": 8, "ep": 8, "zero_stage": 0}, ["plan.zero_stage = 1"]),
        ({"dp": 8, "ep": 8, "zero_stage": 1}, []),
        ({"dp": 4, "tp": 2, "ep": 2, "zero_stage": 0}, []),  # ep within tp
        ({"dp": 8, "ep": 4, "dp_replicate": 4, "zero_stage": 3}, ["plan.dp_replicate = 2"]),
        (
            {"dp": 8, "ep": 4, "etp": 2, "dp_replicate": 2, "zero_stage": 3},
            ["plan.dp_replicate = 1"],
        ),
        ({"dp": 8, "ep": 4, "dp_replicate": 2, "zero_stage": 3}, []),
    ],
)
def test_experts_are_spread_over_one_replica(axes, hints):
    assert found(**axes) == hints


@given(dp=POWERS, tp=POWERS, ep=POWERS, replicas=POWERS, zero=st.sampled_from([0, 1, 3]))
def test_a_plan_is_refused_where_the_meshes_cannot_be_made(dp, tp, ep, replicas, zero):
    pytest.importorskip("torch")
    from meshwright.base.errors import MeshwrightError
    from meshwright.train.mesh import degrees_of

    if dp % replicas or dp * tp % ep:
        return  # rules see to these
    axes = {"dp": dp, "tp": tp, "ep": ep, "dp_replicate": replicas, "zero_stage": zero}
    try:
        degrees_of(Plan(**axes))
    except MeshwrightError:
        assert len(found(**axes)) == 1
    else:
        assert found(**axes) == []
