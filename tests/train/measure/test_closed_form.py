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


def job_of(family, fields, microbatches, **changed):
    config = tiny_config(family).to_dict() | changed
    if "num_experts" in changed:
        config.pop("num_local_experts", None)  # the same under another name
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


ROUTED = [  # fields of the plan: what a token keeps for every expert, and for those it goes to
    {"dp": 4},
    {"dp": 4, "ep": 4},
    {"dp": 2, "tp": 2},
]


@pytest.mark.parametrize("fields", ROUTED)
def test_what_a_router_keeps_grows_with_experts_and_choices_as_predicted(fields):
    def kept(experts, top_k):
        changed = {"num_experts": experts, "num_experts_per_tok": top_k}
        job, config = job_of("qwen3_moe", fields, 1, **changed)
        (found,) = measure_ranks(job, config, [0], extend=False)
        return next(x for x in found.lines if x.name == "activations")

    few, many, wide = kept(8, 2), kept(32, 2), kept(8, 4)
    for more in (many, wide):
        measured, predicted = more.measured - few.measured, more.predicted - few.predicted
        assert measured > 0
        assert predicted == pytest.approx(measured, rel=0.1)  # tables of indices


MASTERS = {"param_bytes": 2, "grad_bytes": 4, "reduce_bytes": 4, "master_weights": True}
HELD = [  # fields of the plan, micro-batches: who holds whole gradients, who gathers for a step
    ({"dp": 4, "zero_stage": 1}, 4),
    ({"dp": 4, "zero_stage": 2}, 2),
    ({"dp": 2, "pp": 2, "zero_stage": 2}, 4),
    ({"dp": 2, "pp": 2, "zero_stage": 3}, 4),
    ({"dp": 2, "zero_stage": 0}, 2),
]


@pytest.mark.parametrize(("fields", "microbatches"), HELD)
def test_masters_gradients_and_states_are_where_the_closed_form_has_them(fields, microbatches):
    job, config = job_of("llama", {**MASTERS, **fields}, microbatches)
    (found,) = measure_ranks(job, config, [0])
    lines = {line.name: line for line in found.lines if line.group == "memory"}
    for name in ("weights", "gradients", "optimizer"):
        assert lines[name].predicted == pytest.approx(lines[name].measured, rel=0.02), name


def test_three_micro_batches_stand_for_many():
    """ZeRO-1: the middle ones find whole gradients, and leave them."""
    job, config = job_of("llama", {**MASTERS, "dp": 2, "zero_stage": 1}, 6)
    (extended,) = measure_ranks(job, config, [0])
    (whole,) = measure_ranks(job, config, [0], extend=False)
    assert extended.reading.peaks == pytest.approx(whole.reading.peaks)
