"""Step time: its parts add up, columns equal scalars, and it moves the right way."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.calibration import calibration_from_table, default_calibration
from meshwright.cost.predict import evaluate, predict
from meshwright.cost.step import step_time
from meshwright.plan.plan import ContextParallel, Recompute, Schedule
from meshwright.rules.example import build_job

CALIBRATION = default_calibration()

PLANS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4, 8]),
        "pp": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]),
        "micro_batch_size": st.sampled_from([1, 2, 4]),
        "zero_stage": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from([int(r) for r in Recompute]),
        "schedule": st.sampled_from([int(Schedule.ONE_F_ONE_B), int(Schedule.ZB_H1)]),
        "context_parallel": st.sampled_from([int(c) for c in ContextParallel]),
        "sequence_parallel": st.booleans(),
        "overlap_grad_reduce": st.booleans(),
    }
)
MODELS = st.sampled_from(["llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b"])


@settings(max_examples=40, deadline=None)
@given(model=MODELS, plan=PLANS)
def test_leaves_add_up_to_the_step(model, plan):
    prediction = predict(build_job(model=model, **plan), CALIBRATION)
    leaves = {
        n: t.value
        for n, t in prediction.terms.items()
        if n.startswith("time.") and n not in ("time.compute", "time.communication")
    }
    assert sum(leaves.values()) == pytest.approx(prediction.step_time_s, rel=1e-6)
    assert all(value >= -1e-9 for value in leaves.values()), leaves
    assert prediction.low_s < prediction.step_time_s < prediction.high_s
    assert np.isfinite(prediction.mfu)


@settings(max_examples=25, deadline=None)
@given(model=MODELS, plans=st.lists(PLANS, min_size=2, max_size=5))
def test_a_column_of_plans_equals_one_plan_at_a_time(model, plans):
    jobs = [build_job(model=model, **plan) for plan in plans]
    names = [*plans[0], "dp"]
    columns = {n: np.array([getattr(j.plan, n) for j in jobs]) for n in names}
    together = evaluate(jobs[0].with_plan(jobs[0].plan.replace(**columns)), CALIBRATION)
    for index, job in enumerate(jobs):
        alone = evaluate(job, CALIBRATION)
        assert np.broadcast_to(together.step_s, len(jobs))[index] == pytest.approx(
            float(alone.step_s), rel=1e-9
        )
        assert np.broadcast_to(together.upper_bytes, len(jobs))[index] == pytest.approx(
            float(alone.upper_bytes), rel=1e-9
        )


@settings(max_examples=30, deadline=None)
@given(model=MODELS, plan=PLANS, share=st.floats(0.05, 1.0))
def test_a_slower_network_never_makes_a_step_faster(model, plan, share):
    job = build_job(model=model, **plan)
    links = tuple(
        dataclasses.replace(link, bytes_per_s=link.bytes_per_s * share)
        for link in job.cluster.links
    )
    slow = dataclasses.replace(job, cluster=dataclasses.replace(job.cluster, links=links))
    assert step_time(slow, CALIBRATION).step_s >= step_time(job, CALIBRATION).step_s * (1 - 1e-12)


@settings(max_examples=30, deadline=None)
@given(plan=PLANS, more=st.sampled_from(["num_hidden_layers", "intermediate_size", "vocab_size"]))
def test_a_larger_model_never_takes_less_time(plan, more):
    base = build_job(model="llama-3-8b", **plan)
    sizes = {"num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256}
    larger = build_job(model="llama-3-8b", **{more: 2 * sizes[more]}, **plan)
    small = step_time(base, CALIBRATION).step_s
    assert step_time(larger, CALIBRATION).step_s >= small * (1 - 1e-12)


def test_recompute_costs_time_and_overlap_saves_it():
    none = step_time(build_job(tp=2), CALIBRATION).step_s
    assert step_time(build_job(tp=2, recompute=int(Recompute.FULL)), CALIBRATION).step_s > none
    exposed = build_job(tp=2, overlap_grad_reduce=False, overlap_param_gather=False)
    assert step_time(exposed, CALIBRATION).step_s > none


def test_interleaving_shrinks_the_bubble():
    plain = step_time(build_job(pp=8, nodes=1, tp=1), CALIBRATION)
    split = step_time(build_job(pp=8, nodes=1, tp=1, vpp=4), CALIBRATION)
    assert float(split.bubble_s) < float(plain.bubble_s)


def test_a_nearly_full_device_stalls_only_where_the_stack_says_so():
    table = {"stack": {"slow": {"thrash_s": 1.0}}}
    slow = calibration_from_table(table)
    job = dataclasses.replace(build_job(), stack="slow")
    full = job.cluster.gpu.memory_bytes
    assert step_time(job, slow, peak_bytes=full).step_s > step_time(job, slow).step_s
    assert step_time(job, CALIBRATION, peak_bytes=full).step_s == pytest.approx(
        float(step_time(job, CALIBRATION).step_s)
    )


def test_stacks_inherit_from_their_kin():
    table = {"stack": {"old": {"attention": 0.5}, "older": {"kin": "old", "step_s": 0.3}}}
    found = calibration_from_table(table).stack("older")
    assert (found.attention, found.step_s) == (0.5, 0.3)
    assert calibration_from_table(table).stack("never heard of").attention == 1.0


def test_keeping_activations_on_the_host_costs_time():
    none = step_time(build_job(tp=2), CALIBRATION, detail=True)
    moved = step_time(build_job(tp=2, offload_activations=1.0), CALIBRATION, detail=True)
    assert moved.step_s > none.step_s
    assert moved.parts["offload"] > 0
    assert np.all(np.asarray(none.parts["offload"]) == 0)


def test_adapters_reduce_only_their_own_gradients():
    full = step_time(build_job(zero_stage=3), CALIBRATION)
    adapters = step_time(build_job(zero_stage=3, lora_rank=16), CALIBRATION)
    slow = calibration_from_table({"hardware": {"hopper": {"scale_out": 0.01}}})
    far_full = step_time(build_job(zero_stage=3), slow)
    far_adapters = step_time(build_job(zero_stage=3, lora_rank=16), slow)
    assert adapters.step_s < full.step_s
    assert far_adapters.step_s < 0.7 * far_full.step_s  # gathers stay, reductions go
