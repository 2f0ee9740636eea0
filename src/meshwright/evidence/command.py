"""The commands `meshwright validate` and `meshwright fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from meshwright.evidence.runs import Runs

RUNS_HELP = "A csv, csv.gz or csv.xz of runs; the packaged reference runs by default."


@click.command()
@click.option("--runs", type=click.Path(path_type=Path), help=RUNS_HELP)
@click.option("--per-row", type=click.Path(path_type=Path), help="Write predictions row by row.")
@click.option("--json", "wants_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--write-docs", type=click.Path(path_type=Path), help="Write the accuracy page.")
@click.option(
    "--leave-one-source-out",
    is_flag=True,
    help="Also predict each source by a fit to the others (minutes; needs scipy).",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="A calibration file in place of the packaged one.",
)
def validate(
    runs: Path | None,
    per_row: Path | None,
    wants_json: bool,
    write_docs: Path | None,
    leave_one_source_out: bool,
    calibration: Path | None,
) -> None:
    """Compare predictions with published runs."""
    from meshwright.evidence import validation as v
    from meshwright.evidence.calibrating import read_calibration
    from meshwright.evidence.page import overview

    found = v.validate(
        runs,
        calibration=read_calibration(calibration) if calibration else None,
        leave_one_source_out=leave_one_source_out,
    )
    _report_findings(found.runs)
    if per_row:
        v.write_per_row(found, per_row)
    if write_docs:
        v.write_docs(found, write_docs)
    click.echo(v.as_json(found) if wants_json else overview(found.summary))


@click.command()
@click.option("--runs", type=click.Path(path_type=Path), help=RUNS_HELP)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The calibration file to write.",
)
@click.option(
    "--start",
    type=click.Path(path_type=Path),
    help="The calibration file to begin at; the packaged one by default.",
)
@click.option(
    "--exponent",
    type=click.FloatRange(0, 1),
    default=0.7,
    show_default=True,
    help="0 gives every row the same weight, 1 every source.",
)
@click.option("--max-evaluations", type=click.IntRange(1), default=30, show_default=True)
def fit(
    runs: Path | None, out: Path, start: Path | None, exponent: float, max_evaluations: int
) -> None:
    """Refit the efficiencies to measurements."""
    from meshwright.evidence.calibrating import read_calibration, write_fit
    from meshwright.evidence.runs import packaged_runs, read_runs

    measured = packaged_runs() if runs is None else read_runs(runs)
    _report_findings(measured)
    found = write_fit(
        measured.rows,
        out,
        calibration=read_calibration(start) if start else None,
        exponent=exponent,
        max_evaluations=max_evaluations,
    )
    click.echo(
        f"{len(found.values)} parameters, {found.evaluations} evaluations: "
        f"robust cost {found.cost_before:.4g} -> {found.cost_after:.4g}, written to {out}"
    )
    for key in found.at_bound:
        click.echo(f"at its bound: {'.'.join(key)}", err=True)


def _report_findings(runs: Runs) -> None:
    """Cells that could not be read, on stderr."""
    for finding in runs.findings:
        click.echo(finding.one_line(), err=True)
