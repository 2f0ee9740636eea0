"""Shrunk plans keep every axis, and every pair of axes meets in one of them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.hardware.catalogue import cluster
from meshwright.model.catalogue import load
from meshwright.plan.degrees import degrees_of
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan, Schedule
from meshwright.train.verify.shrinking import AXES, Trial, trials


def _job(**fields: Any) -> Job:
    return Job(
        model=load("qwen3-30b-a3b"),
        cluster=cluster("H100:8", nodes=64),
        workload=Workload(seq_len=4096, global_batch_size=1024),
        plan=Plan(**fields),
    )


def _axes(trial: Trial) -> set[str]:
    return {axis for axis in AXES if int(getattr(trial.plan, axis)) > 1}


@given(
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 2, 8]),
    cp=st.sampled_from([1, 4]),
    dp=st.sampled_from([1, 2, 16]),
    replicated=st.booleans(),
    ep=st.sampled_from([1, 2, 8]),
    ranks=st.sampled_from([4, 8, 16]),
)
def test_pairs_of_axes_meet_and_ranks_are_enough(
    *, tp: int, pp: int, cp: int, dp: int, replicated: bool, ep: int, ranks: int
) -> None:
    replicate = 2 if replicated and dp == 16 else 1
    job = _job(tp=tp, pp=pp, cp=cp, dp=dp, dp_replicate=replicate, ep=ep)
    found = trials(job, ranks=ranks)
    assert all(trial.world_size <= ranks for trial in found)
    assert all(degrees_of(trial.plan).world_size == trial.world_size for trial in found)
    wanted = {axis for axis in AXES if int(getattr(job.plan, axis)) > 1}
    assert set().union(*map(_axes, found)) == wanted
    if replicate == 1:
        for pair in combinations(sorted(wanted), 2):
            assert any(set(pair) <= _axes(trial) for trial in found)


def test_everything_at_once_where_it_fits() -> None:
    (trial,) = trials(_job(tp=8, pp=4, dp=16, ep=8), ranks=8)
    assert _axes(trial) == {"tp", "pp", "dp"}
    assert int(trial.plan.ep) > 1


def test_spare_ranks_make_the_pipeline_longer() -> None:
    (trial,) = trials(_job(pp=8, dp=2, schedule=int(Schedule.ZB_H1)), ranks=8)
    assert (int(trial.plan.pp), int(trial.plan.dp)) == (4, 2)
    assert trial.microbatches >= 4


def test_uneven_stages_stay_uneven() -> None:
    (trial,) = trials(_job(pp=2, first_stage_layers=20), ranks=2)
    assert trial.plan.layout == (2, 1)
    assert trial.layers == 3


def test_hybrid_sharding_needs_four() -> None:
    (trial,) = trials(_job(dp=16, dp_replicate=4, zero_stage=3), ranks=8)
    assert (int(trial.plan.dp), int(trial.plan.dp_replicate)) == (4, 2)


def test_each_axis_alone_where_two_do_not_fit() -> None:
    found = trials(_job(tp=2, pp=2), ranks=2)
    assert sorted(map(sorted, map(_axes, found))) == [["pp"], ["tp"]]


def test_one_rank_runs_the_plan_without_axes() -> None:
    (trial,) = trials(_job(tp=2, recompute=2), ranks=1)
    assert trial.world_size == 1
    assert int(trial.plan.recompute) == 2


def test_no_ranks_are_refused() -> None:
    with pytest.raises(MeshwrightError, match="0 ranks"):
        trials(_job(), ranks=0)
