"""GitLab's code quality report: a JSON list that merge requests show at the lines concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.base.finding import Severity
from meshwright.report.check.fingerprint import fingerprints
from meshwright.report.check.path import relative
from meshwright.report.findings import remarks

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.report.check.report import Checked, Report
    from meshwright.report.check.texts import Texts

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}
UNREADABLE = "unreadable"


def render(report: Report, texts: Texts) -> str:
    """Every finding that has a file, and every file that could not be read."""
    placed = [finding for finding in report.findings if finding.file]
    issues = [_issue(finding, mark) for finding, mark in fingerprints(placed, texts)]
    issues += [_unreadable(checked) for checked in report.unreadable]
    return msgspec.json.format(msgspec.json.encode(issues), indent=2).decode() + "\n"


def _issue(finding: Finding, fingerprint: str) -> dict[str, Any]:
    return {
        "description": finding.message,
        "check_name": finding.code or "meshwright",
        "content": {"body": "\n\n".join(f"{word}: {text}" for word, text in remarks(finding))},
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": relative(finding.file), "lines": {"begin": max(finding.line, 1)}},
    }


def _unreadable(checked: Checked) -> dict[str, Any]:
    from hashlib import sha256

    path = relative(checked.file)
    return {
        "description": checked.error,
        "check_name": UNREADABLE,
        "fingerprint": sha256(f"{path}\0{UNREADABLE}".encode(errors="replace")).hexdigest()[:32],
        "severity": "blocker",
        "location": {"path": path, "lines": {"begin": 1}},
    }
