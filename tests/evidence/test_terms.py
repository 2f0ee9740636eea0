from __future__ import annotations

import pytest

from meshwright.cost.memory import memory, memory_stack
from meshwright.evidence.forecasts import forecasts_of_jobs
from meshwright.evidence.row import Inexpressible
from meshwright.evidence.terms import GIB, MEMORY_TERMS


@pytest.fixture(scope="module")
def some(jobs):
    picked = jobs[::29]
    found = forecasts_of_jobs(picked)
    return [(j, f) for j, f in zip(picked, found, strict=True) if not isinstance(j, Inexpressible)]


def test_the_seconds_add_up_to_the_step(some) -> None:
    for _, found in some:
        seconds = sum(v for name, v in found.terms.items() if name.endswith("_s"))
        assert seconds == pytest.approx(found.step_time_s, rel=1e-9)


def test_the_gibibytes_add_up_to_the_peak(some) -> None:
    for _, found in some:
        parts = sum(found.terms[name] for name in (*MEMORY_TERMS, "other_gib"))
        assert parts == pytest.approx(found.peak_gib, rel=1e-9)
        assert found.peak_gib < found.upper_gib


def test_a_column_has_the_peaks_of_its_plans(some) -> None:
    for job, found in some:
        alone = memory(job, memory_stack(job.stack))
        if job.stack == "nanotron":
            expected = alone.terms["memory.stage0.peak"]
        else:
            expected = alone.peak_bytes
        assert found.peak_gib == pytest.approx(float(expected) / GIB, rel=1e-6)


def test_no_time_is_negative(some) -> None:
    # the host takes what kernels and pipeline leave, so it carries the closed form's approximations
    for _, found in some:
        low = min(v for name, v in found.terms.items() if name.endswith("_s"))
        assert low >= -0.05 * found.step_time_s
