from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.evidence.timed import convention_of, timed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("model FLOPs, Megatron-LM log, causal-halved attention, incl. vocab", "model_causal"),
        ("MaxText model FLOPs 6N+12LHQT, full attention (version of the table)", "model_full"),
        ("hardware FLOPs 96*B*s*L*h^2(1+s/6h+V/16Lh) (SC21)", "sc21_hardware"),
        ("72*B*s*L*h^2*(1+s/6h+V/12hL), full attention", "korthikanti"),
        ("model FLOPs, formula not stated", None),
    ],
)
def test_conventions_by_their_description(text, name) -> None:
    assert convention_of(text) == name


def test_reported_step_times_are_kept(reference) -> None:
    some = [run for run in reference if run.measured.step_time_s][::200]
    assert timed(some) == tuple(some)


def test_a_derived_step_time_agrees_with_the_reported_one(reference) -> None:
    both = [
        run
        for run in reference
        if run.is_judged and run.step_time_s and run.measured.tflops_gpu and run.flops_convention
    ][::7]
    hidden = [
        replace(run, measured=replace(run.measured, step_time_s=None, tokens_per_s_gpu=None))
        for run in both
    ]
    pairs = [
        (again.step_time_s / run.step_time_s)
        for run, again in zip(both, timed(hidden), strict=True)
        if again.step_time_s
    ]
    assert len(pairs) > 50
    assert np.median(pairs) == pytest.approx(1.0, abs=0.01)
    assert np.mean(np.abs(np.asarray(pairs) - 1) < 0.06) > 0.9


def test_nearly_every_judged_row_has_a_step_time(reference) -> None:
    judged = [run for run in timed(reference) if run.is_judged]
    assert all(run.step_time_s for run in judged)
