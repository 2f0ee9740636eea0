"""Stage composition: every layer lies on exactly one rank, columns equal scalars."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.hardware.cluster import Cluster, Gpu, Link
from meshwright.model.architecture import Attention, Block, BlockRun, Experts, Mlp, Model
from meshwright.plan.distinct import distinct
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan, Schedule
from meshwright.plan.stages import all_stage_layers, representative_stages, stage_layers

ATTENTION = Attention(num_attention_heads=8, num_key_value_heads=8, head_dim=16, v_head_dim=16)
DENSE = Block(attention=ATTENTION, feed_forward=Mlp(intermediate_size=256))
ROUTED = Block(
    attention=ATTENTION,
    feed_forward=Experts(num_experts=8, top_k=2, intermediate_size=64),
)


def job(plan: Plan, *, dense: int = 3, routed: int = 5, mtp: int = 0) -> Job:
    gpu = Gpu(
        name="x", generation="hopper", memory_bytes=8e10, memory_bytes_per_s=1e12, peak_flops={}
    )
    link = Link(name="l", kind="nvlink", domain=8, bytes_per_s=1e11, latency_s=1e-6)
    runs = tuple(BlockRun(block=b, count=n) for b, n in ((DENSE, dense), (ROUTED, routed)) if n)
    model = Model(
        name="m",
        hidden_size=128,
        vocab_size=1000,
        runs=runs,
        mtp=(BlockRun(block=ROUTED, count=mtp),) if mtp else (),
    )
    cluster = Cluster(gpu=gpu, num_gpus=8, gpus_per_node=8, links=(link,))
    workload = Workload(seq_len=128, global_batch_size=8)
    return Job(model=model, cluster=cluster, workload=workload, plan=plan)


plans = st.builds(
    Plan,
    pp=st.integers(1, 9),
    vpp=st.integers(1, 4),
    schedule=st.sampled_from([int(s) for s in Schedule if s != Schedule.DUALPIPE]),
    first_stage_layers=st.integers(0, 3),
    last_stage_layers=st.integers(0, 3),
    embedding_in_split=st.booleans(),
    loss_in_split=st.booleans(),
)


@given(plans, st.integers(0, 6), st.integers(1, 40))
def test_every_layer_lies_on_one_rank(plan: Plan, dense: int, routed: int) -> None:
    if plan.first_stage_layers + plan.last_stage_layers > dense + routed:
        return
    if plan.pp == 2 and plan.first_stage_layers and plan.last_stage_layers:
        return  # both ranks are pinned: only a sum equal to the layers is legal
    stages = all_stage_layers(job(plan, dense=dense, routed=routed))
    assert sum(int(s.layers) for s in stages) == dense + routed
    assert sum(int(s.embedding) for s in stages) == 1
    assert sum(int(s.head) for s in stages) == 1
    assert all(int(c) >= 0 for s in stages for c in s.counts)


@given(st.lists(plans, min_size=2, max_size=8))
def test_columns_equal_scalars(rows: list[Plan]) -> None:
    names = ("pp", "vpp", "schedule", "first_stage_layers", "last_stage_layers")
    column = Plan(**{n: np.array([getattr(r, n) for r in rows]) for n in names})
    for _, stage in representative_stages(column):
        got = stage_layers(job(column), stage)
        for i, row in enumerate(rows):
            alone = Plan(**{n: getattr(row, n) for n in names})
            want = stage_layers(job(alone), int(stage[i]))
            assert [int(c[i]) for c in got.counts] == [int(c) for c in want.counts]
            assert bool(got.head[i]) == bool(want.head)


def test_uneven_ends() -> None:
    plan = Plan(pp=16, first_stage_layers=3, last_stage_layers=2)
    stages = all_stage_layers(job(plan, dense=3, routed=58))
    assert [int(s.layers) for s in stages] == [3, *[4] * 14, 2]
    assert [int(s.counts[0]) for s in stages][:2] == [3, 0]


def test_embedding_and_loss_count_as_layers() -> None:
    plan = Plan(pp=4, embedding_in_split=True, loss_in_split=True)
    stages = all_stage_layers(job(plan, dense=0, routed=14))
    assert [int(s.layers) for s in stages] == [3, 4, 4, 3]


def test_v_shape_puts_both_ends_on_rank_zero() -> None:
    stages = all_stage_layers(job(Plan(pp=4, schedule=int(Schedule.ZB_V)), dense=0, routed=16))
    assert [int(s.layers) for s in stages] == [4, 4, 4, 4]
    assert bool(stages[0].embedding)
    assert bool(stages[0].head)
    assert not bool(stages[3].head)


def test_dualpipe_holds_two_stages_a_rank() -> None:
    stages = all_stage_layers(job(Plan(pp=4, schedule=int(Schedule.DUALPIPE)), dense=0, routed=8))
    assert [int(s.layers) for s in stages] == [4, 4, 4, 4]
    assert [bool(s.embedding) for s in stages] == [True, False, False, True]


def test_layout_is_taken_literally() -> None:
    stages = all_stage_layers(job(Plan(pp=2, vpp=2, layout=(1, 4, 2, 1)), dense=3, routed=5))
    assert [int(s.layers) for s in stages] == [3, 5]
    assert [int(s.counts[0]) for s in stages] == [1, 2]


def test_mtp_stays_with_the_head() -> None:
    stages = all_stage_layers(job(Plan(pp=2), mtp=1))
    assert [int(s.mtp) for s in stages] == [0, 1]
    assert [int(s.layers) for s in stages] == [4, 5]


@pytest.mark.parametrize("big", [5, 1 << 21])
def test_distinct_rebuilds_the_columns(big: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, big, 500), rng.integers(0, 7, 500)
    first, inverse = distinct(a, 3, b)
    assert np.array_equal(a[first][inverse], a)
    assert np.array_equal(b[first][inverse], b)
    assert len({(int(x), int(y)) for x, y in zip(a[first], b[first], strict=True)}) == first.size


def test_a_column_of_split_options_alone():
    """Only the split varies, so what it does not touch stays scalar."""
    several = job(Plan(pp=4, embedding_in_split=np.array([True, False])))
    counts = stage_layers(several, 0).layers
    alone = [
        stage_layers(several.with_plan(Plan(pp=4, embedding_in_split=flag)), 0).layers
        for flag in (True, False)
    ]
    assert np.broadcast_to(counts, 2).tolist() == alone
