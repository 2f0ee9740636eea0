"""For people: every finding with its lines of the file, what each file amounts to, a tally."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.report.check.tally import tally_lines
from meshwright.report.check.visible import harmless
from meshwright.report.findings import finding_lines

if TYPE_CHECKING:
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts


def render(report: Report, texts: Texts) -> str:
    """The report as plain text; nothing is wrapped, cut or colored."""
    return "".join(line + "\n" for line in lines(report, texts))


def lines(report: Report, texts: Texts, *, quiet: bool = False) -> list[str]:
    """The report line by line; `quiet` leaves only the findings."""
    found: list[str] = []
    for finding in report.findings:
        found += [*finding_lines(finding, texts), ""]
    if quiet:
        return found[:-1]
    found += [f"{harmless(c.file)}: {harmless(c.summary)}" for c in report.files if c.summary]
    found += tally_lines(report)
    worst = max(report.findings, key=lambda f: f.severity, default=None)
    if worst is not None and worst.code and worst.severity is not Severity.INFO:
        found.append(f"next: meshwright explain {worst.code}")
    return found
