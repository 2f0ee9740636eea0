"""From names to ranked plans: pins, bans, objectives, distinct rows, an interrupt."""

import itertools
from dataclasses import replace

import pytest

import meshwright
from meshwright.rules.rule import check, pruning_rules
from meshwright.search import fastest
from meshwright.search import sweep as sweep_module
from meshwright.search.infeasible import WORTH_SAYING
from meshwright.search.result import describe, mesh, schedule, sharding

ON = {"nodes": 2, "seq_len": 4096, "global_batch": 256}


def plan(model="llama-3-8b", gpus="H100:8", **asked):
    return meshwright.plan(model, gpus, **{**ON, **asked})


def test_rows_are_legal_fit_and_get_slower():
    found = plan(top=8)
    assert len(found.rows) == 8
    times = [row.prediction.step_time_s for row in found.rows]
    assert times == sorted(times)
    for row in found.rows:
        assert row.prediction.required_bytes <= found.limit_bytes
        assert not check(row.job, pruning_rules())


def test_rows_differ_in_mesh_schedule_or_sharding():
    looks = [(mesh(r.plan), int(r.plan.schedule), sharding(r.plan)) for r in plan(top=10).rows]
    assert len(looks) == len(set(looks))


def test_rows_differ_in_details_when_the_rest_is_pinned():
    pins = {"tp": 1, "pp": 1, "cp": 1, "dp_replicate": 1, "zero_stage": 3, "offload_optimizer": 0}
    rows = plan(pins=pins, top=4).rows
    assert len(rows) == 4
    assert len({describe(row.plan) for row in rows}) == 4


def test_a_host_that_computes_itself_has_nowhere_to_move_states_to():
    gpus = meshwright.cluster("H100:8")
    host = replace(gpus, gpu=replace(gpus.gpu, generation="cpu"))
    asked = {"nodes": 1, "top": 20}
    assert not any(row.plan.offload_optimizer for row in plan(gpus=host, **asked).rows)
    pinned = plan(gpus=host, pins={"offload_optimizer": 1}, **asked).rows
    assert pinned
    assert all(row.plan.offload_optimizer for row in pinned)


def test_the_same_question_has_the_same_answer():
    first, second = plan(), plan()
    assert first.table() == second.table()
    assert first.rejected == second.rejected
    assert [m.remedy for m in first.misses] == [m.remedy for m in second.misses]


@pytest.mark.parametrize(
    ("name", "given", "held"),
    [
        ("tp", 4, {4}),
        ("pp", [2, 4], {2, 4}),
        ("schedule", "zb-v", {3}),
        ("recompute", "full", {2}),
        ("sequence_parallel", False, {False}),
        ("loss_chunks", 4, {4}),
    ],
)
def test_pins_hold_in_every_row(name, given, held):
    found = plan(pins={name: given})
    assert found.rows
    assert {getattr(row.plan, name) for row in found.rows} <= held


def test_bans_hold_in_every_row():
    bans = {"tp": [2, 4, 8], "zero_stage": 3}
    rows = plan(bans=bans, top=10).rows
    assert rows
    assert not any(row.plan.tp in bans["tp"] or row.plan.zero_stage == 3 for row in rows)


def test_interleaved_means_more_than_one_chunk():
    rows = plan("llama-3.1-70b", nodes=8, pins={"schedule": "interleaved"}).rows
    assert rows
    assert all(schedule(row.plan).startswith("interleaved v") for row in rows)


def test_objectives_lead_to_what_they_name():
    fast, small, cheap = (plan(objective=o) for o in ("throughput", "memory", "cost"))
    assert fast.best.prediction.step_time_s <= small.best.prediction.step_time_s
    assert small.best.prediction.required_bytes <= fast.best.prediction.required_bytes
    assert cheap.best.tokens_per_s_per_gpu >= fast.best.tokens_per_s_per_gpu
    assert small.sensitivity == ()


def test_the_frontier_trades_time_for_memory():
    front = plan().frontier
    assert len(front) > 2
    for faster, smaller in itertools.pairwise(front):
        assert faster.prediction.step_time_s <= smaller.prediction.step_time_s
        assert faster.prediction.peak_bytes > smaller.prediction.peak_bytes


def test_misses_would_win_if_they_fitted():
    found = plan("llama-3.1-70b", nodes=8)
    assert found.misses
    overs = [miss.over_bytes for miss in found.misses]
    assert overs == sorted(overs)
    for miss in found.misses:
        assert miss.over_bytes > 0
        assert miss.step_time_s < found.best.prediction.step_time_s
        assert "GiB more memory per GPU" in miss.remedy
        gain = found.best.prediction.step_time_s / miss.step_time_s - 1
        assert ("faster" in miss.remedy) == (gain >= WORTH_SAYING)
        assert not check(miss.job, pruning_rules())


def test_a_swing_names_a_winner_that_is_not_the_first_plan():
    found = plan("llama-3.1-70b", nodes=8)
    assert found.sensitivity
    for swing in found.sensitivity:
        assert swing.regret > 0
        assert swing.winner != found.best.plan


def test_an_interrupted_search_says_so(monkeypatch):
    monkeypatch.setattr(sweep_module, "SLAB", 256)
    calls = itertools.count()

    def stop(done, total):
        if next(calls) == 6:
            raise KeyboardInterrupt

    found = plan(progress=stop)
    assert found.rows
    assert found.costed < plan().costed
    assert "stopped early" in found.notes[0]
    assert all(r.prediction.required_bytes <= found.limit_bytes for r in found.rows)


def test_the_fastest_plan_is_the_first_row_of_the_search():
    pins = {"cp": 1, "ep": 1}
    found = plan(pins=pins, top=3)
    settings = meshwright.api.options(pins, {})
    best = fastest(found.job, settings)
    assert describe(best.plan) == describe(found.rows[0].plan)
    assert best.prediction.step_time_s == found.rows[0].prediction.step_time_s
    other = fastest(found.job, settings, accept=lambda p: p.tp != best.plan.tp)
    assert other.plan.tp != best.plan.tp
    assert other.prediction.step_time_s >= best.prediction.step_time_s
    assert fastest(found.job, settings, accept=lambda _: False) is None
