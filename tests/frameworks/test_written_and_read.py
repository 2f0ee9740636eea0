"""What is written in a framework's words reads back to the same job."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import api
from meshwright.api.converting import written
from meshwright.frameworks.framework import framework
from meshwright.frameworks.inverse import idle_fields
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan, Recompute, Schedule
from meshwright.plan.stages import chunk_layers
from meshwright.plan.words import FIELDS

WRITTEN = (
    ("torchtitan", ""),
    ("torchtitan", "0.3"),
    ("nanotron", ""),
    ("verl", ""),
    ("paddlenlp", ""),
    ("colossalai", ""),
    ("meshwright", ""),
)
MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "llama-3.2-1b", "deepseek-v2-lite")
SPLIT = {"layout", "first_stage_layers", "last_stage_layers", "embedding_in_split", "loss_in_split"}
STATES = st.sampled_from([(4, 4, 4, False), (2, 4, 4, True), (2, 2, 2, False), (2, 2, 2, True)])
PIPELINES = st.sampled_from(
    [
        (Schedule.ONE_F_ONE_B, 1),
        (Schedule.ONE_F_ONE_B, 2),
        (Schedule.ONE_F_ONE_B, 4),
        (Schedule.GPIPE, 1),
        (Schedule.ZB_V, 2),
        (Schedule.DUALPIPE_V, 2),
        (Schedule.ZB_H1, 1),
    ]
)
powers = st.sampled_from([1, 2, 4])
few = st.sampled_from([1, 1, 1, 2, 4])


@st.composite
def jobs(draw):
    """A job of a kind that several frameworks can run."""
    tp, pp, cp, dp = (draw(axis) for axis in (powers, few, few, st.sampled_from([1, 2, 8])))
    model = api.load_model(draw(st.sampled_from(MODELS)))
    schedule, vpp = draw(PIPELINES) if pp > 1 else (Schedule.ONE_F_ONE_B, 1)
    param, grad, state, master = draw(STATES)
    routed = any(run.block.is_moe for run in model.runs)
    ep = draw(st.sampled_from([1, dp])) if routed else 1
    offloaded = draw(st.booleans())
    plan = Plan(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        ep=ep,
        etp=draw(st.sampled_from([1, tp])) if ep > 1 else 1,
        vpp=vpp,
        schedule=int(schedule),
        micro_batch_size=draw(powers),
        zero_stage=draw(st.integers(0, 3)),
        reshard_after_forward=draw(st.booleans()),
        dp_replicate=draw(st.sampled_from([1, dp])),
        sequence_parallel=draw(st.booleans()) and tp > 1,
        loss_parallel=draw(st.booleans()),
        context_parallel=draw(st.integers(0, 2)) if cp > 1 else 0,
        embedding_in_split=draw(st.booleans()),
        loss_in_split=draw(st.booleans()),
        recompute=int(draw(st.sampled_from(Recompute))),
        recompute_modules=draw(st.sampled_from([1, 2, 5, 128])),
        recompute_layers=draw(st.sampled_from([0, 2])),
        precision=draw(st.sampled_from([1, 1, 1, 0, 2, 3, 4])),
        param_bytes=param,
        grad_bytes=grad,
        reduce_bytes=draw(st.sampled_from([grad, 4])),
        optimizer_state_bytes=state,
        master_weights=master,
        offload_params=offloaded,
        offload_optimizer=1.0 if offloaded else 0.0,
        overlap_tp=draw(st.booleans()),
        overlap_grad_reduce=draw(st.booleans()),
        overlap_param_gather=draw(st.booleans()),
        compile=draw(st.booleans()),
        cuda_graph=draw(st.booleans()),
        lora_rank=draw(st.sampled_from([0, 16])),
    )
    gpus = tp * pp * cp * dp
    batch = plan.micro_batch_size * dp * draw(st.sampled_from([8, 16]))
    return Job(
        model=model,
        cluster=api.cluster(f"H100:{min(gpus, 8)}", nodes=max(gpus // 8, 1)),
        workload=Workload(seq_len=4096, global_batch_size=batch),
        plan=plan,
    )


@pytest.mark.parametrize(("name", "version"), WRITTEN)
@settings(max_examples=60)
@given(job=jobs())
def test_a_job_survives_but_for_what_is_called_lost(name, version, job):
    own = framework(name)
    expressed = own.express(job, version)
    if expressed.refused:
        assert all(expressed.refused.values())
        return
    ((file, text),) = written(own, expressed).items()
    reading = read_text(text, file=file)
    assert reading.config.framework.name == name
    assert not reading.config.unknown
    assert not reading.config.findings
    drafted = draft(reading, model=job.model, cluster=job.cluster)
    assert not drafted.problems
    again, lost = drafted.job, {*expressed.lost}
    for field in {*FIELDS} - SPLIT - lost - idle_fields(job.plan):
        assert getattr(job.plan, field) == getattr(again.plan, field), field
    if not SPLIT & lost and "vpp" not in lost:
        assert chunk_layers(job.model, again.plan) == chunk_layers(job.model, job.plan)
    assert again.workload.seq_len == job.workload.seq_len
    if "global_batch_size" not in lost:
        assert again.workload.global_batch_size == job.workload.global_batch_size


@pytest.mark.parametrize(("name", "version"), WRITTEN)
def test_an_ordinary_job_is_not_refused(name, version):
    sharded = 3 if name in ("torchtitan", "verl") else 1
    job = Job(
        model=api.load_model("llama-3.1-8b"),
        cluster=api.cluster("H100:8", nodes=2),
        workload=Workload(seq_len=4096, global_batch_size=64),
        plan=Plan(dp=16, zero_stage=sharded),
    )
    assert not framework(name).express(job, version).refused


@pytest.mark.parametrize(("name", "version"), WRITTEN[:-1])
@given(job=jobs())
@settings(max_examples=30)
def test_every_setting_that_is_written_is_a_field(name, version, job):
    own = framework(name)
    for setting in own.express(job, version).settings:
        field = own.table.find(setting, version)
        assert field is not None, setting
        assert field.name == setting
