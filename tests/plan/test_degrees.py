"""Axes of a plan fold over the same ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.plan.degrees import degrees_of
from meshwright.plan.plan import Plan

small = st.sampled_from([1, 2, 3, 4, 8])


@given(tp=small, pp=small, cp=small, dp=small, ep=small, etp=small)
def test_dense_and_expert_axes_cover_the_same_ranks(
    *, tp: int, pp: int, cp: int, dp: int, ep: int, etp: int
) -> None:
    plan = Plan(tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, etp=etp)
    if (tp * cp * dp) % (ep * etp):
        with pytest.raises(MeshwrightError, match="does not divide"):
            degrees_of(plan)
        return
    d = degrees_of(plan)
    assert d.world_size == tp * pp * cp * dp
    assert d.pp * d.dp_replicate * d.efsdp * d.ep * d.etp == d.world_size
    assert d.fsdp == d.dp_shard * d.cp


def test_without_zero_every_replica_is_whole() -> None:
    d = degrees_of(Plan(dp=4, zero_stage=0))
    assert (d.dp_replicate, d.dp_shard) == (4, 1)


def test_replicas_must_divide() -> None:
    with pytest.raises(MeshwrightError, match="dp_replicate 3"):
        degrees_of(Plan(dp=4, dp_replicate=3))
