"""Predictions never read what was measured."""

from __future__ import annotations

import csv
import io
import lzma
from importlib.resources import files

import pytest

from meshwright.evidence.forecasts import forecasts
from meshwright.evidence.row import MEASURED
from meshwright.evidence.runs import runs_of_text

EVERY = 40


@pytest.fixture(scope="module")
def lines() -> list[dict[str, str]]:
    packed = files("meshwright.evidence").joinpath("data/published-runs.csv.xz").read_bytes()
    return list(csv.DictReader(io.StringIO(lzma.decompress(packed).decode())))[::EVERY]


def text_of(lines: list[dict[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def test_blank_measurements_change_no_prediction(lines) -> None:
    blanked = [line | dict.fromkeys(MEASURED, "") for line in lines]
    seen = forecasts([run.row for run in runs_of_text(text_of(lines))])
    unseen = forecasts([run.row for run in runs_of_text(text_of(blanked))])
    assert seen == unseen
    assert sum(f.step_time_s is not None for f in seen) > 0.7 * len(seen)


def test_source_and_identity_change_no_prediction(lines) -> None:
    anonymous = [
        line | {"source": "x", "source_ref": "", "id": str(i)} for i, line in enumerate(lines)
    ]
    seen = forecasts([run.row for run in runs_of_text(text_of(lines))])
    assert seen == forecasts([run.row for run in runs_of_text(text_of(anonymous))])


def test_rows_together_are_predicted_as_alone(reference) -> None:
    rows = [run.row for run in reference][::61]
    together = forecasts(rows)
    for row, expected in zip(rows, together, strict=True):
        (alone,) = forecasts([row])
        assert alone.reason == expected.reason
        if alone.step_time_s is not None:
            assert alone.step_time_s == pytest.approx(expected.step_time_s, rel=1e-9)


def test_the_interval_holds_the_estimate(reference) -> None:
    for found in forecasts([run.row for run in reference][::83]):
        if found.step_time_s is not None:
            assert found.low_s < found.step_time_s < found.high_s
