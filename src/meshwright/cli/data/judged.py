"""`--plan plan.toml` of the commands that make or read shards: how the two fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meshwright.base.finding import exit_code
from meshwright.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.base.finding import Finding

PLAN = click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    help="The plan.toml that trains on it: also say what the rules on data have against that.",
)


def findings_before(seq_len: int | None, plan_file: str | None) -> Sequence[Finding]:
    """Reads the plan and says what can be held against rows of `seq_len` tokens before they exist.

    So what is wrong is told before hours of work, not after. None where there will be no rows.
    """
    if plan_file is None:
        return ()
    from meshwright import api
    from meshwright.api.feeding import row_findings

    job = api.read_job(plan_file)
    return () if seq_len is None else row_findings(seq_len, job)


def findings_under(folder: str, plan_file: str | None) -> Sequence[Finding]:
    """What the rules have against training on a folder by a plan; nothing without a plan."""
    if plan_file is None:
        return ()
    from meshwright.api.feeding import data_findings

    return data_findings(folder, plan_file)


def tell(findings: Sequence[Finding]) -> int:
    """Prints findings to stderr; 1 when one of them is an error."""
    from meshwright.report.findings import findings_lines

    if findings:
        output.remark("", *findings_lines(findings))
    return exit_code(findings)


def with_findings(record: Mapping[str, Any], findings: Sequence[Finding]) -> Mapping[str, Any]:
    """A JSON record with what `tell` would print."""
    from meshwright.report.findings import finding_record

    if not findings:
        return record
    return {**record, "plan_findings": [finding_record(finding) for finding in findings]}
