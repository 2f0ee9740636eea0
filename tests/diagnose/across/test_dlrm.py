"""The job of eight real traces, as its ground truth has it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meshwright.diagnose.across.join import across
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.read import read_trace

FOLDER = Path(__file__).parents[4] / "shared/traces/public/param-dlrm-8xv100"


@pytest.fixture(scope="module")
def job():
    if not FOLDER.is_dir():
        pytest.skip(f"the real traces are not at {FOLDER}")
    files = sorted(FOLDER.glob("rank_*.json.gz"))
    expected = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))["job"]
    return across([rank_of(read_trace(f)) for f in files]), expected


def test_figures_of_the_job(job):
    found, expected = job
    assert found.times_last == tuple(expected["times_last"])
    assert found.straggler_rank == expected["straggler_rank"]
    for name in ("nccl_total_us_by_rank", "wait_us_by_rank", "step_us_by_rank"):
        np.testing.assert_allclose(getattr(found, name), expected[name], atol=1.0)
    np.testing.assert_allclose(found.wait_share_by_rank, expected["wait_share_by_rank"], atol=2e-4)
    assert found.transfer_us_sum_of_min == pytest.approx(expected["transfer_us_sum_of_min"], abs=1)


def test_single_collectives(job):
    found, expected = job
    assert len(found.collectives) == len(expected["collectives"])
    for met, told in zip(found.collectives, expected["collectives"], strict=True):
        for name, value in told.items():
            shown = getattr(met, name)
            if isinstance(value, str):
                assert shown == value
            else:
                np.testing.assert_allclose(shown, value, atol=1.0)


def test_eight_ranks_of_one_host_share_a_clock(job):
    found, _ = job
    assert set(found.clock_shift_us) == {0.0}
    assert found.clock_residual_us < 5.0
    assert found.stragglers[0].rank == 7
