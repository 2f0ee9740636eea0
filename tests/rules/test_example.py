"""Examples are parsed lines, never evaluated."""

from __future__ import annotations

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.model.architecture import Experts
from meshwright.plan.plan import Schedule
from meshwright.rules.example import example_job, parse_example


def test_keywords_reach_their_nouns() -> None:
    job = example_job(
        'plan(model="llama-3-8b", tp=2, schedule=Schedule.GPIPE, nodes=2, seq_len=8192, '
        'num_workers=3, nccl_algo="Ring", deterministic=True, net_bytes_per_s=1e9, '
        "gpu_sm_count=100, host_cores=7, num_hidden_layers=5)"
    )
    assert (job.plan.tp, job.plan.schedule, job.plan.dp) == (2, Schedule.GPIPE, 8)
    assert (job.cluster.num_gpus, job.cluster.links[1].bytes_per_s) == (16, 1e9)
    assert (job.cluster.gpu.sm_count, job.cluster.host.cores) == (100, 7)
    assert (job.workload.seq_len, job.workload.loading.num_workers) == (8192, 3)
    assert job.workload.runtime.nccl_algo == "Ring"
    assert job.workload.recipe.deterministic is True
    assert job.model.num_hidden_layers == 5


def test_experts_make_a_model_routed() -> None:
    experts = example_job("plan(num_experts=16, top_k=2)").model.layers[0].feed_forward
    assert isinstance(experts, Experts)
    assert (experts.num_experts, experts.top_k) == (16, 2)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "plan(tp=__import__('os'))",
        "plan(tp=(lambda: 3)())",
        "plan(4)",
        "plan(**{'tp': 4})",
        "job(tp=4)",
        "plan(tp=4",
        "plan(schedule=Schedule.MISSING)",
        "plan(schedule=np.int64)",
        "tp=4",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MeshwrightError, match="not an example"):
        parse_example(text)


def test_an_unknown_field_or_model_is_named() -> None:
    with pytest.raises(MeshwrightError, match="tensor_parallel"):
        example_job("plan(tensor_parallel=4)")
    with pytest.raises(MeshwrightError, match="llama-9"):
        example_job('plan(model="llama-9")')
