"""Closed forms equal the simulation where they claim to, and stay near it elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from schedule_cases import KINDS, Pipeline, kind_seconds, pipelines, usual_seconds

from meshwright.cost.schedules import (
    bubble_share,
    chunk_of,
    chunks_per_rank,
    describe,
    exact,
    num_stages,
    param_copies,
    pipeline_s,
    saved_microbatches,
)
from meshwright.plan.plan import Schedule

LOOPED = tuple(kind for kind in KINDS if kind[0] in (Schedule.GPIPE, Schedule.ONE_F_ONE_B))
EVEN_BOUND = {"v-half": 0.15, "zb-v": 0.16, "dualpipe": 0.45, "dualpipe-v": 0.4}  # else 5%
UNEVEN_BOUND = {"v-half": 0.2, "dualpipe": 0.15, "dualpipe-v": 0.15}  # else 13%
TRANSFER_BOUND = {"v-half": 0.05}  # else 3%


def claims_exactness(pipeline):
    return bool(
        exact(
            pipeline.schedule,
            pp=pipeline.pp,
            vpp=pipeline.vpp,
            num_microbatches=pipeline.num_microbatches,
        )
    )


@settings(max_examples=200, deadline=None)
@given(pipelines(), kind_seconds)
def test_even_stages_where_exact(pipeline, seconds_of_kinds):
    assume(claims_exactness(pipeline))
    event(pipeline.definition.name)
    seconds = pipeline.seconds(*seconds_of_kinds)
    assert pipeline.closed_s(seconds) == pytest.approx(pipeline.run(seconds).makespan_s, rel=1e-9)


@settings(max_examples=150, deadline=None)
@given(pipelines(), usual_seconds)
def test_even_stages_elsewhere(pipeline, seconds_of_kinds):
    assume(not claims_exactness(pipeline))
    seconds = pipeline.seconds(*seconds_of_kinds)
    error = pipeline.closed_s(seconds) / pipeline.run(seconds).makespan_s - 1
    assert abs(error) < EVEN_BOUND.get(pipeline.definition.name, 0.05)


@settings(max_examples=120, deadline=None)
@given(pipelines(LOOPED), kind_seconds, st.floats(1.0, 3.0), st.data())
def test_one_heavy_last_stage(pipeline, seconds_of_kinds, factor, data):
    # embedding and head make the outer stages heavy; the head, at the end, most
    rounds = data.draw(st.integers(1, 5))
    pipeline = Pipeline(pipeline.schedule, pipeline.pp, pipeline.vpp, rounds * pipeline.pp)
    seconds = pipeline.seconds(*seconds_of_kinds)
    seconds[-1, -1] *= factor
    assert pipeline.closed_s(seconds) == pytest.approx(pipeline.run(seconds).makespan_s, rel=1e-9)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 8), st.integers(1, 40), kind_seconds, st.floats(1.0, 3.0), st.integers(0, 7))
def test_one_heavy_stage_anywhere(pp, num_microbatches, seconds_of_kinds, factor, heavy):
    assume(heavy < pp <= num_microbatches)
    pipeline = Pipeline(Schedule.ONE_F_ONE_B, pp, 1, num_microbatches)
    seconds = pipeline.seconds(*seconds_of_kinds)
    seconds[heavy] *= factor
    closed = pipeline.closed_s(seconds, ranks_after=pp - 1 - heavy)
    assert closed == pytest.approx(pipeline.run(seconds).makespan_s, rel=1e-9)
    assert pipeline.closed_s(seconds) >= closed * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 40), st.data())
def test_gpipe_with_any_stages(pp, num_microbatches, data):
    # one factor a stage: the slowest forward is the slowest backward
    factors = data.draw(st.lists(st.floats(0.2, 5.0), min_size=pp, max_size=pp))
    pipeline = Pipeline(Schedule.GPIPE, pp, 1, num_microbatches)
    seconds = pipeline.seconds(1.0, 1.1, 0.9) * np.reshape(factors, (pp, 1, 1))
    assert pipeline.closed_s(seconds) == pytest.approx(pipeline.run(seconds).makespan_s, rel=1e-9)


@pytest.mark.parametrize(("schedule", "vpp"), KINDS)
def test_error_with_uneven_stages_stays_in_its_bound(schedule, vpp):
    """Chunks vary by 20%, and the head makes the last stage up to twice as long."""
    random = np.random.default_rng(0)
    errors = []
    for _ in range(40):
        pp = int(random.choice([2, 4, 8]))
        pipeline = Pipeline(schedule, pp, vpp, pp * int(random.integers(2, 9)))
        stages = random.uniform(0.8, 1.2, pipeline.pp * pipeline.chunks)
        stages[num_stages(schedule, pp=pp, vpp=vpp) - 1] *= random.uniform(1.0, 2.0)
        seconds = pipeline.seconds(1.0, 1.1, 0.9)
        for rank in range(pp):
            for chunk in range(pipeline.chunks):
                stage = chunk_of(schedule, pp=pp, vpp=vpp, rank=rank, chunk=chunk)
                seconds[rank, chunk] *= stages[int(stage)]
        errors.append(pipeline.closed_s(seconds) / pipeline.run(seconds).makespan_s - 1)
    name = pipeline.definition.name
    print(f"{name} vpp={vpp}: median {np.median(errors):+.3f}, worst {_worst(errors):+.3f}")
    assert abs(_worst(errors)) < UNEVEN_BOUND.get(name, 0.13)


@pytest.mark.parametrize("overlapped", [True, False])
@pytest.mark.parametrize(("schedule", "vpp"), KINDS)
def test_error_with_transfers_stays_in_its_bound(schedule, vpp, overlapped):
    """A transfer takes up to 5% of a rank's time for one micro-batch."""
    random = np.random.default_rng(1)
    errors = []
    for _ in range(40):
        pp = int(random.choice([2, 4, 8]))
        pipeline = Pipeline(schedule, pp, vpp, pp * int(random.integers(2, 9)))
        seconds = pipeline.seconds(1.0, 1.1, 0.9)
        p2p_s = random.uniform(0, 0.15)
        run = pipeline.run(seconds, p2p_s=p2p_s, overlapped=overlapped)
        closed = pipeline.closed_s(seconds, p2p_s=p2p_s, overlap_pp=overlapped)
        errors.append(closed / run.makespan_s - 1)
    name = pipeline.definition.name
    print(
        f"{name} vpp={vpp} overlapped={overlapped}: "
        f"median {np.median(errors):+.3f}, worst {_worst(errors):+.3f}"
    )
    assert abs(_worst(errors)) < TRANSFER_BOUND.get(name, 0.03)


def _worst(errors):
    return max(errors, key=abs)


@settings(max_examples=150, deadline=None)
@given(pipelines(max_microbatches=30))
def test_held_activations_equal_the_simulation(pipeline):
    saved = saved_microbatches(
        pipeline.schedule,
        pp=pipeline.pp,
        vpp=pipeline.vpp,
        num_microbatches=pipeline.num_microbatches,
        stage=np.arange(pipeline.pp),
    )
    np.testing.assert_allclose(saved, pipeline.held(), rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_columns_equal_rows(data):
    rows = data.draw(st.lists(st.tuples(pipelines(), kind_seconds), min_size=1, max_size=12))
    plans = [plan for plan, _ in rows]
    names = ("schedule", "pp", "vpp", "num_microbatches")
    columns = {name: np.array([int(getattr(p, name)) for p in plans]) for name in names}
    times = dict(
        zip(("forward_s", "backward_s", "weight_s"), np.array([t for _, t in rows]).T, strict=True)
    )
    totals = {f"total_{name}": value * columns["pp"] for name, value in times.items()}
    arguments = columns | times | totals | {"p2p_s": 0.01, "overlap_pp": columns["pp"] % 2 == 0}
    schedule = arguments.pop("schedule")
    together = pipeline_s(schedule, **arguments)
    saved = saved_microbatches(
        schedule, **{n: columns[n] for n in names[1:]}, stage=columns["pp"] - 1
    )
    for i, plan in enumerate(plans):
        own = {k: v[i] if np.ndim(v) else v for k, v in arguments.items()}
        assert together[i] == pipeline_s(plan.schedule, **own)
        own_saved = saved_microbatches(
            plan.schedule, **{n: getattr(plan, n) for n in names[1:]}, stage=plan.pp - 1
        )
        assert saved[i] == own_saved


def test_columns_broadcast_in_two_dimensions():
    schedule = np.array([[Schedule.GPIPE], [Schedule.ONE_F_ONE_B], [Schedule.ZB_V]])
    saved = saved_microbatches(
        schedule,
        pp=4,
        vpp=np.where(schedule == Schedule.ZB_V, 2, 1),
        num_microbatches=6,
        stage=np.arange(4),
    )
    np.testing.assert_array_equal(saved, [[6, 6, 6, 6], [4, 3, 2, 1], [4, 4, 4, 4]])


def test_no_plans_give_no_times():
    none = np.array([], dtype=int)
    saved = saved_microbatches(none, pp=none, vpp=none, num_microbatches=none, stage=0)
    assert saved.shape == (0,)


@settings(max_examples=100, deadline=None)
@given(pipelines(), kind_seconds, st.floats(1.0, 2.0))
def test_time_never_falls_when_work_or_transfers_grow(pipeline, kinds, factor):
    seconds = pipeline.seconds(*kinds)
    base = pipeline.closed_s(seconds, p2p_s=0.01)
    assert pipeline.closed_s(seconds * factor, p2p_s=0.01) >= base * (1 - 1e-12)
    assert pipeline.closed_s(seconds, p2p_s=0.01 * factor) >= base * (1 - 1e-12)
    more = Pipeline(pipeline.schedule, pipeline.pp, pipeline.vpp, 2 * pipeline.num_microbatches)
    assert more.closed_s(seconds) >= pipeline.closed_s(seconds)


@settings(max_examples=150, deadline=None)
@given(pipelines(), usual_seconds, st.floats(0.0, 0.5), st.integers(0, 2))
def test_time_never_falls_when_one_kind_of_pass_grows(pipeline, kinds, more_s, kind):
    slower = [s + more_s * (i == kind) for i, s in enumerate(kinds)]
    before = pipeline.closed_s(pipeline.seconds(*kinds))
    assert pipeline.closed_s(pipeline.seconds(*slower)) >= before * (1 - 1e-12)


@pytest.mark.parametrize("num_microbatches", [1, 2, 3])
def test_slower_weight_gradients_cost_time_where_they_are_few(num_microbatches):
    pipeline = Pipeline(Schedule.V_HALF, 8, 2, num_microbatches)
    times = [pipeline.closed_s(pipeline.seconds(1.0, 1.25, w)) for w in (0.45, 0.6, 0.75, 0.9)]
    assert times == sorted(times)
    for w, closed in zip((0.45, 0.9), (times[0], times[-1]), strict=True):
        simulated = pipeline.run(pipeline.seconds(1.0, 1.25, w)).makespan_s
        assert closed == pytest.approx(simulated, rel=0.13)


def test_published_bubbles():
    # arXiv 2104.04473 section 2.2: (pp-1)/m of the ideal time, over vpp when interleaved
    def bubble(schedule, vpp, **seconds):
        plan = {"pp": 8, "vpp": vpp, "num_microbatches": 64}
        share = bubble_share(schedule, **plan, **seconds)
        return share / (1 - share) * 64  # in units of f + b + w

    assert bubble(Schedule.GPIPE, 1) == pytest.approx(7)
    assert bubble(Schedule.ONE_F_ONE_B, 1) == pytest.approx(7)
    assert bubble(Schedule.ONE_F_ONE_B, 4) == pytest.approx(7 / 4)
    # arXiv 2401.10241 section 2.3: (pp-1)(f + b - w), a third of 1F1B's at f = b = w
    assert bubble(Schedule.ZB_H1, 1) == pytest.approx(7 / 3)
    # deepseek-ai/DualPipe README: (pp/2-1)(F&B + B - 3W) with F&B = f+b+w, B = b+w, at f = b = w
    assert bubble(Schedule.DUALPIPE, 2) == pytest.approx(3 * (1 + 2 - 1) / 3)


def test_published_memory():
    def held(schedule, vpp=1, stage=0):
        return float(saved_microbatches(schedule, pp=8, vpp=vpp, num_microbatches=64, stage=stage))

    assert held(Schedule.ONE_F_ONE_B) == 8
    assert held(Schedule.ONE_F_ONE_B, vpp=2) == 8 * (1 + 7 / 16)  # 1 + (pp-1)/(pp vpp)
    assert held(Schedule.DUALPIPE) == 9
    assert held(Schedule.V_HALF, 2) / held(Schedule.ZB_V, 2) == pytest.approx(0.5, abs=0.13)
    assert list(param_copies(np.arange(8))) == [1, 1, 1, 1, 1, 2, 1, 1]


def test_weight_gradients_that_keep_less_hold_less():
    pipeline = Pipeline(Schedule.ZB_H1, 4, 1, 16)
    full, third = pipeline.held(), pipeline.held(weight_share=1 / 3)
    # pp - rank whole micro-batches, and rank that wait for their weight gradient only
    np.testing.assert_allclose(full, 4)
    np.testing.assert_allclose(third, [4, 3 + 1 / 3, 2 + 2 / 3, 2])


def test_every_stage_has_one_home():
    for schedule, vpp in KINDS:
        pipeline = Pipeline(schedule, 4, vpp, 4)
        ranks, chunks = np.meshgrid(np.arange(4), np.arange(pipeline.chunks), indexing="ij")
        stages = chunk_of(schedule, pp=4, vpp=vpp, rank=ranks, chunk=chunks)
        copies = int(param_copies(schedule))
        count = int(num_stages(schedule, pp=4, vpp=vpp))
        assert sorted(stages.ravel()) == sorted(list(range(count)) * copies)


def test_first_and_last_stage_share_a_rank_in_a_v():
    assert chunk_of(Schedule.ZB_V, pp=4, vpp=2, rank=0, chunk=1) == 7
    assert chunk_of(Schedule.DUALPIPE, pp=4, vpp=2, rank=0, chunk=1) == 3
    assert chunk_of(Schedule.ONE_F_ONE_B, pp=4, vpp=2, rank=0, chunk=1) == 4
    assert list(chunks_per_rank(np.array([1, 3, 5]), np.array([3, 1, 1]))) == [3, 2, 2]


def test_describe_fills_every_field():
    for row in describe():
        assert all(row.values()), row
