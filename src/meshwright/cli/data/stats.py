"""`meshwright data stats`: what a folder of shards holds, and how it was made."""

from __future__ import annotations

import click

from meshwright.base.finding import exit_code
from meshwright.cli import output
from meshwright.cli.data.judged import PLAN, findings_under, tell, with_findings

_EPILOG = """\b
Examples:
  meshwright data stats shards/
  meshwright data stats shards/ --plan plan.toml
  meshwright data stats shards/ --json | jq .strategies
"""


@click.command(epilog=_EPILOG)
@click.argument("folder")
@PLAN
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(folder: str, *, plan_file: str | None, as_json: bool) -> int:
    """Say what FOLDER holds: tokens, rows, padding, sources, what was dropped and why.

    Padding and cut documents are told for all packing strategies at this length of rows, and how
    much more the costliest row costs than the mean one. Reads the manifest and the pack plans.
    """
    from meshwright.data.shards.stats import stats as read
    from meshwright.report.shards import stats_page, stats_record

    found = read(folder)
    findings = findings_under(folder, plan_file)
    if as_json:
        output.json(with_findings(stats_record(folder, found), findings))
        return exit_code(findings)
    output.page(stats_page(folder, found))
    return tell(findings)
