"""One line a finding, for grep and for editors: `file:line:col: error MOD103 message`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.check.report import is_fixable
from meshwright.report.check.visible import harmless

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts


def render(report: Report, texts: Texts) -> str:  # noqa: ARG001 - every format takes both
    """One line a finding; those that `--fix` mends are marked with [*]."""
    return "".join(_line(finding, unsafe=report.unsafe) + "\n" for finding in report.findings)


def _line(finding: Finding, *, unsafe: bool) -> str:
    place = f"{finding.location}: " if finding.location else ""
    code = f"{finding.code} " if finding.code else ""
    mark = "[*] " if is_fixable(finding, unsafe=unsafe) else ""
    message = f"{place}{finding.severity.label} {code}{mark}{finding.message}"
    return harmless(message).replace("\n", " ")
