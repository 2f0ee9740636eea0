"""Workflow commands, which GitHub Actions shows as annotations at the lines of a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.report.check.path import relative
from meshwright.report.findings import words

if TYPE_CHECKING:
    from meshwright.base.finding import Finding
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report, texts: Texts) -> str:  # noqa: ARG001 - every format takes both
    """One command a finding."""
    return "".join(_command(finding) + "\n" for finding in report.findings)


def _command(finding: Finding) -> str:
    """`::error file=train.sh,line=3,col=8,title=MOD103::message`."""
    at = finding.own_label
    properties = {
        "file": relative(finding.file) if finding.file else "",
        "line": str(finding.line or ""),
        "col": str(finding.column or ""),
        "endColumn": str(at.column + at.length) if at else "",
        "title": f"meshwright {finding.code}".rstrip(),
    }
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::{_COMMANDS[finding.severity]} {listed}::{_data(words(finding))}"


def _data(text: str) -> str:
    """The message, with what would end it encoded."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
