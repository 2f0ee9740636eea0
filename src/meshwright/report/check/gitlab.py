"""GitLab's code quality report: a JSON list that merge requests show at the lines concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Severity
from meshwright.report.check.fingerprint import fingerprints
from meshwright.report.check.path import relative
from meshwright.report.findings import remarks
from meshwright.report.machine import indented

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def render(report: Report, texts: Texts) -> str:
    """Every finding that has a file."""
    placed = [finding for finding in report.findings if finding.file]
    issues = [_issue(finding, mark) for finding, mark in fingerprints(placed, texts)]
    return indented(issues)


def _issue(finding: Finding, fingerprint: str) -> dict[str, Any]:
    return {
        "description": finding.message,
        "check_name": finding.code or "meshwright",
        "content": {"body": "\n\n".join(f"{word}: {text}" for word, text in remarks(finding))},
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": relative(finding.file), "lines": {"begin": max(finding.line, 1)}},
    }
