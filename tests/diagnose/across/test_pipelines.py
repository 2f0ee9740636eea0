"""Pipelines: stages wait for each other by design, and for a slow one beyond it."""

from __future__ import annotations

import pytest

from making import Spec, write_run
from meshwright.diagnose.across.join import across
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.read import read_trace

SMALL = {"layers": 4, "micro_batches": 4, "vocab": 512}


def ranks_of(tmp_path, **given):
    return [rank_of(read_trace(p)) for p in write_run(Spec(**(SMALL | given)), tmp_path)]


def test_a_slow_stage_sets_the_pace(tmp_path):
    found = across(ranks_of(tmp_path, pp=4, dp=2, slow_stage=2))
    roots = found.stragglers
    assert {s.rank for s in roots} == {4, 5}
    assert {s.because for s in roots} == {"compute"}
    assert found.imbalance["stage"] > 1.3
    assert max(found.stage_compute_us) == found.stage_compute_us[2]


def test_an_even_pipeline_has_no_straggler(tmp_path):
    found = across(ranks_of(tmp_path, pp=4, dp=2))
    assert found.stragglers == ()
    assert found.imbalance["stage"] < 1.1
    assert sum(found.wait_us_by_rank) > 0.0


def test_a_slow_rank_inside_a_stage(tmp_path):
    found = across(ranks_of(tmp_path, pp=2, tp=2, dp=2, slow_rank=6))
    assert found.straggler_rank == 6
    assert found.stragglers[0].rank == 6
    assert found.stragglers[0].share > 0.8


@pytest.mark.parametrize("given", [{"p2p_args": False}, {"era": "2022"}])
def test_sends_without_messages_are_matched_by_time(tmp_path, given):
    found = across(ranks_of(tmp_path, pp=2, dp=2, slow_stage=1, **given))
    assert found.unmatched == 0
    assert {s.rank for s in found.stragglers if s.because == "compute"} == {2, 3}
