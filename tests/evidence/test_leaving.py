from __future__ import annotations

import pytest

from meshwright.evidence.leaving import leave_one_out

pytest.importorskip("scipy")

SOURCES = ("internevo-a100", "paper-megatron-sc21", "paper-korthikanti22")


def test_each_source_is_predicted_without_itself(reference) -> None:
    runs = [run for run in reference if run.source in SOURCES]
    found = leave_one_out(runs)
    assert found is not None
    assert {name: e.rows for name, e in found.by_source.items()} == {
        "internevo-a100": 54,
        "paper-megatron-sc21": 10,
        "paper-korthikanti22": 8,
    }
    assert found.median_source < 1.0


def test_no_rows_leave_nothing() -> None:
    assert leave_one_out([]) is None
