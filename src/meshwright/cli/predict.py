"""`meshwright predict`: memory and time of one given plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from meshwright import api
from meshwright.base.finding import exit_code
from meshwright.cli import output

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.plan.job import Job

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
    from meshwright.report.findings import finding_record
    from meshwright.report.prediction import prediction_page, prediction_record

    job = api.read_job(file)
    findings = api.check(job)
    if _exceeds(job) and exit_code(findings):
        return _findings_only(findings, as_json=as_json)
    prediction = api.predict(job)
    if as_json:
        record = prediction_record(job, prediction)
        output.json(record | {"findings": [finding_record(f) for f in findings]})
    else:
        output.page(prediction_page(job, prediction, by=by, file=file))
        _remark(findings)
    return exit_code(findings)


def _exceeds(job: Job) -> bool:
    """Whether the mesh of one replica is larger than the cluster, so that there is no figure."""
    plan = job.plan
    return int(plan.tp) * int(plan.pp) * int(plan.cp) > job.cluster.num_gpus


def _findings_only(findings: list[Finding], *, as_json: bool) -> int:
    """What the rules have against a plan that cannot even be laid on the GPUs."""
    from meshwright.report.findings import finding_record

    if as_json:
        output.json({"findings": [finding_record(f) for f in findings]})
    _remark(findings if not as_json else [])
    return exit_code(findings)


def _remark(findings: list[Finding]) -> None:
    """Findings on stderr."""
    from meshwright.report.findings import findings_lines

    if findings:
        output.remark("", *findings_lines(findings))
