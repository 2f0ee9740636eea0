"""For programs: every field of every finding; `version` rises when a field changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.report.check.report import is_fixable
from meshwright.report.check.tally import statistics
from meshwright.report.findings import finding_record
from meshwright.report.machine import to_json

if TYPE_CHECKING:
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts


def render(report: Report, texts: Texts) -> str:  # noqa: ARG001 - every format takes both
    """The report as one JSON record."""
    return to_json(record(report))


def record(report: Report) -> dict[str, Any]:
    """Files, findings, and how many of each."""
    findings = report.findings
    return {
        "files": [
            {
                "file": checked.file,
                "framework": checked.framework,
                "framework_version": checked.version,
                "summary": checked.summary,
                "figures": dict(checked.figures),
                "error": checked.error,
            }
            for checked in report.files
        ],
        "findings": [finding_record(f) | {"fixable": is_fixable(f)} for f in findings],
        "statistics": statistics(findings, unsafe=report.unsafe),
        "skipped": list(report.skipped),
        "fixed": report.fixed,
    }
