"""`meshwright predict`: memory and time of one given plan."""

from __future__ import annotations

import click

from meshwright import api
from meshwright.base.finding import exit_code
from meshwright.cli import output

_EPILOG = """\b
Examples:
  meshwright predict plan.toml
  meshwright predict plan.toml --by term
  meshwright predict plan.toml --json
"""


@click.command(epilog=_EPILOG)
@click.argument("file")
@click.option(
    "--by",
    type=click.Choice(("stage", "term", "rank")),
    default="stage",
    show_default=True,
    help="Memory by pipeline stage, time by term, or memory by rank.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def predict(file: str, by: str, as_json: bool) -> int:
    """Predict memory and step time of the plan in FILE, a plan.toml.

    What the rules have against the plan goes to stderr; exits with 1 when one of them is an error.
    """
    from meshwright.report.findings import finding_record, findings_lines
    from meshwright.report.prediction import prediction_page, prediction_record

    job = api.read_job(file)
    findings = api.check(job)
    prediction = api.predict(job)
    if as_json:
        record = prediction_record(job, prediction)
        output.json(record | {"findings": [finding_record(f) for f in findings]})
    else:
        output.page(prediction_page(job, prediction, by=by, file=file))
        if findings:
            output.remark("", *findings_lines(findings))
    return exit_code(findings)
