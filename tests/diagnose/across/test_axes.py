"""Process groups and the axes that they run along."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import Job as Played
from jobs import compute, grid, meet, play
from meshwright.diagnose.across.axes import axis_choices, described, group_axes, with_axes
from meshwright.diagnose.rank import Collective
from meshwright.diagnose.trace.columns import Group
from meshwright.plan.degrees import degrees_of
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan


def group(name, ranks, description="undefined"):
    return Group(name=name, description=description, ranks=tuple(ranks), size=len(ranks))


def job_of(**fields):
    """All that axes read of a job is its plan, and whether the model has experts."""
    return Job(model=SimpleNamespace(kinds=()), cluster=None, workload=None, plan=Plan(**fields))


@pytest.mark.parametrize(
    ("description", "axis"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("EXPERT_DATA_PARALLEL_GROUP", "edp"),
        ("mesh_tp", "tp"),
        ("mesh_dp_shard_cp", "dp_shard"),
        ("mesh_dp_replicate", "dp_replicate"),
        ("tp", "tp"),
        ("fsdp", "dp_shard"),
        ("undefined", ""),
        ("default_pg", ""),
        ("", ""),
    ],
)
def test_descriptions(description, axis):
    assert described(description) == axis


def test_members_tell_the_axis_with_a_plan():
    job = job_of(tp=2, cp=2, dp=4, pp=2, ep=2, etp=2, zero_stage=1)
    lines = grid(32, [("tp", 2), ("cp", 2), ("dp", 4), ("pp", 2)])
    groups = [group(f"{axis}{i}", m) for axis, rows in lines.items() for i, m in enumerate(rows)]
    found = group_axes(groups, job=job, world_size=32)
    assert {found[f"pp{i}"] for i in range(16)} == {"pp"}
    assert {found[f"tp{i}"] for i in range(16)} == {"tp"}
    assert {found[f"dp{i}"] for i in range(8)} == {"dp"}


def test_several_axes_over_the_same_ranks_are_told_and_not_guessed():
    job = job_of(tp=1, dp=4, ep=4, zero_stage=1)
    groups = [group("7", range(4)), group("8", range(4))]
    assert group_axes(groups, job=job, world_size=4) == {"7": "", "8": ""}
    assert set(axis_choices(groups, job=job, world_size=4)["7"]) == {"dp", "ep"}


def test_without_a_plan_only_descriptions_count():
    groups = [group("0", range(8), "default_pg"), group("1", (0, 1)), group("2", (0, 2), "mesh_dp")]
    found = group_axes(groups, job=None, world_size=8)
    assert found == {"0": "world", "1": "", "2": "dp"}


def test_a_plan_of_another_world_says_nothing():
    job = job_of(tp=2, dp=2)
    assert group_axes([group("1", (0, 1))], job=job, world_size=8) == {"1": ""}


def test_pipeline_before_data_parallel_ranks():
    """Megatron's --use-tp-pp-dp-mapping."""
    job = job_of(tp=2, pp=2, dp=2, zero_stage=0)
    groups = [group("t", (0, 1)), group("p", (0, 2)), group("d", (0, 4), "DATA_PARALLEL_GROUP")]
    assert group_axes(groups, job=job, world_size=8) == {"t": "tp", "p": "pp", "d": "dp"}


@given(
    tp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 2, 3]),
    pp=st.sampled_from([1, 2, 3]),
)
def test_every_line_of_an_axis_is_that_axis(tp, cp, dp, pp):
    job = job_of(tp=tp, cp=cp, dp=dp, pp=pp, zero_stage=1)
    world = degrees_of(job.plan).world_size
    lines = grid(world, [("tp", tp), ("cp", cp), ("dp", dp), ("pp", pp)])
    groups = [
        group(f"{axis}{i}", members)
        for axis, rows in lines.items()
        for i, members in enumerate(rows)
        if len(members) > 1
    ]
    choices = axis_choices(groups, job=job, world_size=world)
    for name, found in choices.items():
        assert name.rstrip("0123456789") in found


def test_collectives_take_the_axis_of_their_group():
    plain = Collective(
        collective="allreduce",
        pg_name="3",
        pg_desc="undefined",
        pg_ranks="[0, 1]",
        group_size=2,
        dtype="Float",
        in_nelems=1,
        out_nelems=1,
        count=1,
        sum_us=1.0,
        min_us=1.0,
        median_us=1.0,
        exposed_us=1.0,
        bytes=4,
        busbw_GBps_at_median=None,
        busbw_GBps_at_min=None,
    )
    played = play(Played(world=2, groups={"3": (0, 1)}, steps=[[[compute(1.0), meet("3")]] * 2]))
    rank = replace(played[0], collectives=(plain, replace(plain, pg_name="4", axis="cp")))
    shown = with_axes(rank, {"3": "tp", "4": ""})
    assert [c.axis for c in shown.collectives] == ["tp", "cp"]


def test_places_grow_along_an_axis():
    lines = grid(12, [("tp", 2), ("dp", 3), ("pp", 2)])
    for axis, rows in lines.items():
        for line in rows:
            assert all(a < b for a, b in pairwise(line)), axis
