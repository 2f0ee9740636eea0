"""Replays of made runs, whose truth is known: they can be made again without the fault."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operations_made import Made

from meshwright.diagnose.pipeline.read import read_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.diagnose.pipeline.noun import Pipeline

SHAPES = [(1, 1, 4, 2), (2, 1, 4, 1), (4, 1, 8, 2), (4, 2, 8, 2), (2, 3, 6, 3), (4, 1, 2, 2)]


def even(direction: str, *_: int) -> float:
    """A compute of the usual length."""
    return 1e4 if direction == "forward" else 2e4


def slow_worker(direction: str, stage: int, dp: int, *_: int) -> float:
    return even(direction) * (2.0 if (stage, dp) == (1, 1) else 1.0)


def heavy_last(direction: str, stage: int, *_: int) -> float:
    return even(direction) * (1.6 if stage == 3 else 1.0)


def uneven_lengths(direction: str, stage: int, dp: int, mb: int, chunk: int, step: int) -> float:
    return even(direction) * (1.0 + ((mb * 7 + dp * 3 + step * 5) % 4) / 2)


def read(made: Made, folder: Path) -> Pipeline:
    return read_pipeline([made.run().write(folder / "timeline-X.json")])


@pytest.mark.parametrize(("pp", "vpp", "m", "dp"), SHAPES)
@pytest.mark.parametrize("work", [even, uneven_lengths])
def test_the_replay_takes_what_the_step_took(
    tmp_path: Path, pp: int, vpp: int, m: int, dp: int, work: object
) -> None:
    made = Made(pp=pp, vpp=vpp, m=m, dp=dp, work_us=work)  # type: ignore[arg-type]
    pipeline = read(made, tmp_path)
    assert (pipeline.p, pipeline.v, pipeline.m, pipeline.dp) == (pp, vpp, m, dp)
    assert pipeline.replay_us == pytest.approx(median(made.step_us), rel=1e-9)
    assert pipeline.step_span_us_median == pytest.approx(median(made.step_us), rel=1e-9)
    assert pipeline.slowdown is not None
    if work is even:
        assert pipeline.slowdown == pytest.approx(1.0, abs=1e-9)
    else:
        assert pipeline.slowdown >= 1.0 - 1e-9
    assert not pipeline.left


@pytest.mark.parametrize(("pp", "vpp", "m", "dp"), SHAPES)
def test_overlapped_reductions_replay_too(
    tmp_path: Path, pp: int, vpp: int, m: int, dp: int
) -> None:
    made = Made(pp=pp, vpp=vpp, m=m, dp=dp, work_us=uneven_lengths, overlapped=True)
    made.scatter_us = 2e4
    pipeline = read(made, tmp_path)
    assert pipeline.replay_us == pytest.approx(median(made.step_us), rel=0.01)


@pytest.mark.parametrize("vpp", [1, 2])
@pytest.mark.parametrize("no_ops", [True, False])
def test_a_slow_worker_is_found_and_its_cure_predicted(
    tmp_path: Path, vpp: int, no_ops: bool
) -> None:
    made = Made(vpp=vpp, dp=3, work_us=slow_worker, no_ops=no_ops)
    pipeline = read(made, tmp_path)
    cured = dataclasses.replace(made, work_us=even, events=[], step_us=[]).run()
    assert pipeline.slowest_workers == ((1, 1),)
    assert pipeline.principal == "straggler: one worker (pp 1, dp 1) 2.00x the median"
    predicted = pipeline.what_if_us["worker pp 1 dp 1 at the median"]
    assert predicted == pytest.approx(median(cured.step_us), rel=1e-9)
    assert pipeline.mw["Mw"] > 0.9
    assert pipeline.ms["Ms"] < 0.1


def test_a_heavy_last_stage_is_found_and_its_cure_predicted(tmp_path: Path) -> None:
    made = Made(work_us=heavy_last)
    pipeline = read(made, tmp_path)
    cured = dataclasses.replace(made, work_us=even, events=[], step_us=[]).run()
    assert pipeline.principal == "model structure: last pipeline stage 1.6x the others"
    predicted = pipeline.what_if_us["last stage as fast as the rest"]
    assert predicted == pytest.approx(median(cured.step_us), rel=1e-9)
    assert pipeline.ms["Ms"] > 0.9


def test_uneven_microbatches_are_found(tmp_path: Path) -> None:
    pipeline = read(Made(work_us=uneven_lengths, dp=4, m=16), tmp_path)
    assert pipeline.principal.startswith("data processing: sequence-length imbalance")


def test_causes_that_hide_each_other_are_weighed_fairly(tmp_path: Path) -> None:
    def both(direction: str, stage: int, dp: int, *where: int) -> float:
        uneven = crc32(repr((dp, where[0], where[2])).encode()) % 100 / 80
        return even(direction) * (1.0 + uneven) * (1.25 if stage == 3 else 1.0)

    pipeline = read(Made(work_us=both, dp=4, m=16, steps=6), tmp_path)
    effects = pipeline.effects_us
    assert effects["microbatches"] > effects["stages"] > effects["workers"]
    alone = pipeline.step_span_us_median - pipeline.what_if_us["microbatches alike"]
    assert effects["microbatches"] > alone  # the heavy stage hides a part of it
    assert pipeline.principal.startswith("data processing")


def test_an_even_run_has_nothing_but_its_bubble(tmp_path: Path) -> None:
    pipeline = read(Made(work_us=even), tmp_path)
    assert pipeline.principal == "pipeline bubble (model structure / schedule)"
    assert all(us == pytest.approx(0.0, abs=1e-6) for us in pipeline.effects_us.values())


def test_free_communication_is_predicted(tmp_path: Path) -> None:
    made = Made(transfer_us=4e3, gather_us=2e4, scatter_us=6e4)
    pipeline = read(made, tmp_path)
    without_pp = dataclasses.replace(made, transfer_us=0.0, events=[], step_us=[]).run()
    without_dp = dataclasses.replace(made, gather_us=0.0, scatter_us=0.0, events=[], step_us=[])
    what_if = pipeline.what_if_us
    assert what_if["pp communication free"] == pytest.approx(median(without_pp.step_us), rel=1e-9)
    assert what_if["dp communication free"] == pytest.approx(
        median(without_dp.run().step_us), rel=1e-9
    )


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    pp=st.integers(1, 4),
    vpp=st.integers(1, 3),
    groups=st.integers(1, 3),
    dp=st.integers(1, 3),
    seed=st.integers(0, 999),
)
def test_any_pipeline_replays_exactly(
    tmp_path: Path, pp: int, vpp: int, groups: int, dp: int, seed: int
) -> None:
    vpp = vpp if pp > 1 else 1

    def work(direction: str, *where: int) -> float:
        return even(direction) * (1 + crc32(repr((seed, direction, where)).encode()) % 100 / 50)

    made = Made(pp=pp, vpp=vpp, m=groups * pp, dp=dp, steps=2, work_us=work)
    pipeline = read(made, tmp_path)
    assert pipeline.replay_us == pytest.approx(median(made.step_us), rel=1e-9)
    assert pipeline.slowdown is not None
    longest = pipeline.step_span_us_median * (1 + 1e-9)
    cured = {k: v for k, v in pipeline.what_if_us.items() if "free" in k or "bubble" in k}
    assert all(0 <= us <= longest for us in cured.values())


def test_of_long_traces_some_steps_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(pp=2, m=2, dp=1, steps=8, work_us=even)
    monkeypatch.setattr("meshwright.diagnose.pipeline.table.CELLS", 100)
    pipeline = read(made, tmp_path)
    assert pipeline.steps == 8
    assert pipeline.replay_us == pytest.approx(median(made.step_us), rel=1e-9)
    (left,) = pipeline.left
    assert left.what == "operations left out of the replay"


def test_of_many_replicas_some_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(direction: str, stage: int, dp: int, *_: int) -> float:
        return even(direction) * (2.0 if (stage, dp) == (1, 5) else 1.0)

    monkeypatch.setattr("meshwright.diagnose.pipeline.read.CHARTED", 100)
    pipeline = read(Made(pp=2, m=2, dp=6, steps=1, work_us=slow), tmp_path)
    assert 0 < len(pipeline.chart) <= 100
    assert any(worker == "pp 1 dp 5" for worker, *_ in pipeline.chart)
