"""A runs file predicted and judged, and the forms in which that is written."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.evidence.forecasts import forecasts
from meshwright.evidence.page import accuracy_page
from meshwright.evidence.runs import Runs, packaged_runs, read_runs
from meshwright.evidence.summary import summarize_runs
from meshwright.evidence.timed import timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.cost.calibration import Calibration
    from meshwright.evidence.errors import Judgement
    from meshwright.evidence.forecasts import Forecast
    from meshwright.evidence.row import Run
    from meshwright.evidence.summary import Summary

HEAD_COLUMNS = (
    "id",
    "predicted_step_time_s",
    "predicted_peak_gib",
    "predicted_peak_upper_gib",
    "reason",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A runs file, its forecasts, and what they come to."""

    runs: Runs
    forecasts: tuple[Forecast, ...]
    summary: Summary
    left_out: Judgement | None = None


def validate(
    path: str | Path | None = None,
    *,
    calibration: Calibration | None = None,
    leave_one_source_out: bool = False,
) -> Validation:
    """Predictions for every row of a runs file (the packaged one by default), and their errors.

    With `leave_one_source_out` each source is also predicted by a fit to all the others. Raises
    InvalidInput for a file that cannot be read as runs.
    """
    read = packaged_runs() if path is None else read_runs(path)
    runs = Runs(timed(read), read.findings)
    found = forecasts([run.row for run in runs], calibration=calibration)
    left_out = None
    if leave_one_source_out:
        from meshwright.evidence.leaving import leave_one_out

        left_out = leave_one_out(runs.rows, calibration=calibration)
    return Validation(
        runs=runs,
        forecasts=found,
        summary=summarize_runs(runs.rows, found),
        left_out=left_out,
    )


def write_per_row(validation: Validation, path: str | Path) -> None:
    """Write one line a row: id, predictions, reason, then the main terms."""
    Path(path).write_text(per_row_csv(validation.runs.rows, validation.forecasts), "utf-8")


def per_row_csv(runs: Sequence[Run], found: Sequence[Forecast]) -> str:
    """The per-row table as csv text; cells without a figure stay empty."""
    names = list(dict.fromkeys(name for f in found for name in f.terms))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*HEAD_COLUMNS, *names])
    for run, forecast in zip(runs, found, strict=True):
        heads = (forecast.step_time_s, forecast.peak_gib, forecast.upper_gib)
        terms = [_cell(forecast.terms.get(name)) for name in names]
        writer.writerow([run.id, *map(_cell, heads), forecast.reason, *terms])
    return text.getvalue()


def _cell(value: float | None) -> str:
    """Six significant digits, nothing for a missing figure."""
    return "" if value is None or value != value else f"{value:.6g}"


def as_json(validation: Validation) -> str:
    """The summary as JSON; figures that do not exist are null."""
    table = asdict(validation.summary) | {
        "findings": [finding.one_line() for finding in validation.runs.findings]
    }
    table["coverage"]["share"] = validation.summary.coverage.share
    if validation.left_out is not None:
        table["leave_one_source_out"] = asdict(validation.left_out)
    return json.dumps(_finite(table), indent=2)


def _finite(value: Any) -> Any:
    """NaN as None, all the way down."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and value != value else value


def write_docs(validation: Validation, path: str | Path) -> None:
    """Write the accuracy page (docs/accuracy.md in the project)."""
    Path(path).write_text(accuracy_page(validation.summary, validation.left_out), "utf-8")
