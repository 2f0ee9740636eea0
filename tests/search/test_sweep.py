"""The sweep: equal to one-plan predictions, to itself in other blocks, and to counting by hand."""

from dataclasses import replace

import numpy as np
import pytest
from spaces import legal_groups, places, plan_in, search, swept

from meshwright.cost.calibration import default_calibration
from meshwright.cost.memory import memory_stack
from meshwright.cost.predict import evaluate, predict
from meshwright.cost.tables import tables
from meshwright.rules.rule import check, find_rule
from meshwright.search import sweep as sweep_module
from meshwright.search.legality import columns

CALIBRATION = default_calibration()
GPT3 = {
    "gpus": "A100-80GB:8",
    "nodes": 64,
    "seq_len": 2048,
    "batch": 1536,
    "exhaustive": True,
}


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("llama-3.1-70b", {"nodes": 8}),
        ("gpt3-175b", GPT3),
        ("deepseek-v3", {"gpus": "H800:8", "nodes": 256, "batch": 15360, "exhaustive": True}),
        ("gpt-oss-20b", {"nodes": 2}),
    ],
)
def test_plans_of_a_sweep_cost_what_one_plan_costs(model, asked):
    """Fifty random plans of each space, four spaces."""
    pins = {"micro_batch_size": [1, 2]} if asked.get("exhaustive") else {}
    pins |= {"cp": 1} if model == "deepseek-v3" else {}
    job, space = search(model, pins=pins, **asked)
    base = space.settings.base
    rows, found = legal_groups(job, space)
    shared = tables(
        job.with_plan(columns(base, rows, space.inner)), CALIBRATION, memory_stack(job.stack)
    )
    chosen = np.random.default_rng(1).permutation(len(found))[:10]
    for number in chosen:
        group = found[number]
        cost = evaluate(
            job.with_plan(group.plan(base)),
            CALIBRATION,
            shared=shared.of(group.row_at, group.inner_at),
        )
        for place in places(group, -(-50 // len(chosen)), seed=int(number)):
            one = predict(job.with_plan(plan_in(group, base, place)), CALIBRATION)
            for column, value in (
                (cost.step_s, one.step_time_s),
                (cost.peak_bytes, one.peak_bytes),
                (cost.upper_bytes, one.required_bytes),
                (cost.host_bytes, one.host_bytes),
            ):
                many = np.broadcast_to(column, group.shape)[place]
                assert many == pytest.approx(value, rel=1e-9), plan_in(group, base, place)


def kept_rows(kept):
    return [] if kept is None else list(zip(*(c.tolist() for c in columns_of(kept)), strict=True))


def columns_of(kept):
    return [*kept.fields.values(), kept.step_s, kept.peak_bytes, kept.upper_bytes]


@pytest.mark.parametrize("block", [64, 1000, 1 << 20])
@pytest.mark.parametrize("slab", [1, 1 << 10])
def test_the_size_of_blocks_changes_nothing(block, slab, monkeypatch):
    job, space = search(exhaustive=True, pins={"micro_batch_size": [1, 2], "cp": 1})
    whole = swept(job, space)
    monkeypatch.setattr(sweep_module, "SLAB", slab)
    parts = swept(job, space, block=block)
    assert parts.rejected == whole.rejected
    assert (parts.candidates, parts.costed, parts.feasible) == (
        whole.candidates,
        whole.costed,
        whole.feasible,
    )
    for name in ("best", "variants", "frontier"):
        assert kept_rows(getattr(parts, name)) == kept_rows(getattr(whole, name)), name
    fastest = whole.frontier.step_s[0]
    near = [sorted(row for row in kept_rows(s.misses) if row[-3] < fastest) for s in (whole, parts)]
    assert near[0] == near[1]


def test_counts_add_up():
    job, space = search("mixtral-8x7b", nodes=2)
    found = swept(job, space)
    assert found.candidates == found.feasible + found.rejected.total()
    costed = sum(np.prod(group.shape) for group in legal_groups(job, space)[1])
    assert found.costed == costed
    assert found.costed == found.feasible + found.rejected["memory"] + found.rejected["CMP209"]


def test_best_and_frontier_are_those_of_the_whole_space():
    job, space = search()
    found = swept(job, space)
    limit, base = job.cluster.gpu.memory_bytes, space.settings.base
    step, peak = [], []
    for group in legal_groups(job, space)[1]:
        cost = evaluate(job.with_plan(group.plan(base)), CALIBRATION)
        fits = np.broadcast_to(cost.upper_bytes <= limit, group.shape)
        step += np.broadcast_to(cost.step_s, group.shape)[fits].tolist()
        peak += np.broadcast_to(cost.peak_bytes, group.shape)[fits].tolist()
    assert found.feasible == len(step)
    assert found.best.step_s[0] == pytest.approx(min(step), rel=1e-12)
    assert found.frontier.peak_bytes[-1] == pytest.approx(min(peak), rel=1e-12)
    times, bytes_used = np.array(step), np.array(peak)
    for t, b in zip(found.frontier.step_s, found.frontier.peak_bytes, strict=True):
        assert not ((times < t * (1 - 1e-9)) & (bytes_used < b * (1 - 1e-9))).any()


def test_progress_ends_with_all():
    seen = []
    job, space = search()
    sweep_module.sweep(
        job,
        space,
        aim=sweep_module.Aim(limit_bytes=job.cluster.gpu.memory_bytes),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1][0] == seen[-1][1] > 0
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_interrupt_returns_what_was_found(monkeypatch):
    job, space = search(nodes=4)
    whole = swept(job, space)
    monkeypatch.setattr(sweep_module, "SLAB", 512)
    calls = []

    def stop(done, total):
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    part = sweep_module.sweep(
        job,
        space,
        aim=sweep_module.Aim(limit_bytes=job.cluster.gpu.memory_bytes),
        progress=stop,
    )
    assert part.interrupted
    assert not whole.interrupted
    assert 0 < part.costed < whole.costed
    assert set(kept_rows(part.frontier)[:1]) <= set(kept_rows(part.variants))


def test_what_the_host_cannot_hold_is_refused():
    job, space = search("llama-3.1-70b", nodes=2, pins={"offload_optimizer": 1.0})
    host = replace(job.cluster.host, memory_bytes=2.0**36)
    small = replace(job, cluster=replace(job.cluster, host=host))
    assert swept(job, space).rejected["CMP209"] == 0
    assert swept(small, space).rejected["CMP209"] > 0
    assert swept(small, space).feasible == 0


def test_feasible_plans_break_no_predictive_rule_about_memory():
    rules = [find_rule(code) for code in ("CMP121", "CMP209", "CMP303", "MOD217")]
    job, space = search("llama-3.1-70b", nodes=4)
    kept = swept(job, space).frontier
    for index in range(len(kept)):
        fields = {name: column[index].item() for name, column in kept.fields.items()}
        plan = space.settings.base.replace(**fields)
        assert not check(job.with_plan(plan), rules)
