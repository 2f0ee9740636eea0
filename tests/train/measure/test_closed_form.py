"""The engine's own step on fake tensors against the closed form of traffic, call by call."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from meshwright.cost.traffic import traffic_of
from meshwright.hardware.cluster import Cluster, Gpu, Link
from meshwright.model.config import model_from_config
from meshwright.plan.job import Job, Workload, world_size
from meshwright.plan.plan import ContextParallel, Plan, Recompute, Schedule
from meshwright.train.measure.plan import measure_ranks
from meshwright.train.model.tiny import tiny_config

pytestmark = pytest.mark.filterwarnings("ignore")

STATES = {"param_bytes": 4, "grad_bytes": 4, "master_weights": False, "zero_stage": 3}
FULL = {"recompute": int(Recompute.FULL)}
PLANS = [  # family, fields of the plan, micro-batches, global rank
    ("llama", {"dp": 8}, 2, 3),
    ("llama", {"dp": 8, "zero_stage": 1, "dp_replicate": 2}, 3, 0),
    ("llama", {"dp": 2, "tp": 2, **FULL}, 1, 1),
    ("qwen3", {"dp": 2, "tp": 2, "sequence_parallel": False}, 1, 0),
    ("llama", {"tp": 2, "param_bytes": 2, "zero_stage": 0, "loss_parallel": False}, 2, 0),
    ("qwen3_moe", {"dp": 4, "ep": 2}, 1, 2),
    ("qwen3_moe", {"dp": 2, "tp": 2, "ep": 2, "etp": 2, "sequence_parallel": False, **FULL}, 1, 0),
    ("llama", {"dp": 2, "pp": 2, "tp": 2}, 2, 4),
    ("llama", {"pp": 2, "vpp": 2}, 4, 0),
    ("llama", {"pp": 2, "dp": 2, "schedule": int(Schedule.ZB_V), "zero_stage": 1}, 4, 0),
    ("llama", {"cp": 2, "dp": 2, "context_parallel": int(ContextParallel.RING), **FULL}, 1, 1),
    ("llama", {"cp": 2, "context_parallel": int(ContextParallel.ALL_GATHER)}, 1, 0),
    ("llama", {"cp": 2, "tp": 2, "context_parallel": int(ContextParallel.ULYSSES)}, 1, 0),
]


def job_of(family, fields, microbatches):
    config = tiny_config(family).to_dict()
    plan = Plan(**{**STATES, **fields})
    gpu = Gpu(name="any", generation="any", memory_bytes=0, memory_bytes_per_s=0, peak_flops={})
    link = Link(name="any", kind="nvlink", domain=8, bytes_per_s=1, latency_s=1)
    ranks = int(world_size(plan))
    cluster = Cluster(gpu=gpu, num_gpus=ranks, gpus_per_node=8, links=(link,))
    batch = int(plan.dp) * int(plan.micro_batch_size) * microbatches
    model = model_from_config(config, name="tiny")
    work = Workload(seq_len=32, global_batch_size=batch)
    return Job(model=model, cluster=cluster, workload=work, plan=plan, stack="fsdp"), config


@pytest.mark.parametrize(("family", "fields", "microbatches", "rank"), PLANS)
def test_every_call_and_byte(family, fields, microbatches, rank):
    job, config = job_of(family, fields, microbatches)
    (found,) = measure_ranks(job, config, [rank])
    differing = [x for x in found.lines if x.group == "traffic" and not x.is_equal]
    assert differing == []
    assert traffic_of(job, found.stage)  # something was compared


def test_the_resident_categories_are_the_closed_forms():
    """Weights, gradients and states of a shard, to the padding of its rows."""
    job, config = job_of("llama", {"dp": 4}, 1)
    (found,) = measure_ranks(job, config, [0])
    lines = {line.name: line for line in found.lines if line.group == "memory"}
    for name in ("weights", "gradients", "optimizer"):
        assert lines[name].predicted == pytest.approx(lines[name].measured, rel=0.02), name
    assert found.reading.peak_bytes == sum(found.reading.parts[found.reading.fullest].values())


def test_a_deep_model_follows_from_shallow_ones():
    """Ten layers and five micro-batches, run whole and extended."""
    job, _ = job_of("llama", {"dp": 2}, 5)
    config = tiny_config("llama", layers=10).to_dict()
    deep = Job(
        model=model_from_config(config, name="tiny"),
        cluster=job.cluster,
        workload=job.workload,
        plan=job.plan,
        stack="fsdp",
    )
    (extended,) = measure_ranks(deep, config, [0], check=True)
    (whole,) = measure_ranks(deep, config, [0], extend=False)
    assert extended.layers_read == (6,)
    assert extended.extension_error == pytest.approx(0, abs=1e-9)
    assert extended.reading.held == pytest.approx(whole.reading.held)
    assert extended.reading.peak_bytes == pytest.approx(whole.reading.peak_bytes)
    assert [x.measured for x in extended.lines if x.group == "traffic"] == pytest.approx(
        [x.measured for x in whole.lines if x.group == "traffic"]
    )
