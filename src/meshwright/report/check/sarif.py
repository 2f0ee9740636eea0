"""SARIF 2.1.0, the OASIS standard that code scanning services read.

Rules carry their page as help, results their places, related places, fixes and a fingerprint that
survives lines added above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from meshwright import __version__
from meshwright.base.finding import Severity
from meshwright.base.locate import Lines
from meshwright.report.check.fingerprint import fingerprints
from meshwright.report.check.path import relative
from meshwright.report.check.report import is_fixable
from meshwright.report.check.rulebook import page_of
from meshwright.report.check.tally import title_of
from meshwright.report.findings import words
from meshwright.report.machine import indented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.base.finding import Edit, Finding
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
UNCODED = "meshwright"  # the rule of findings that no rule of the catalogue makes
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report, texts: Texts) -> str:
    """One run with all findings; files that could not be read are notifications of the tool."""
    findings = report.findings
    codes = sorted({finding.code or UNCODED for finding in findings})
    run = {
        "tool": {"driver": _driver(codes)},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [
            _result(finding, mark, codes, texts) for finding, mark in fingerprints(findings, texts)
        ],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return indented(log)


def _driver(codes: Sequence[str]) -> dict[str, Any]:
    return {
        "name": "meshwright",
        "semanticVersion": __version__,
        "rules": [_rule(code) for code in codes],
    }


def _rule(code: str) -> dict[str, Any]:
    """A rule with its page; one that is not in the catalogue has only its name."""
    page = page_of(code)
    rule: dict[str, Any] = {"id": code, "name": code}
    if page is None:
        title = title_of(code)
        return rule | {"shortDescription": {"text": title}} if title else rule
    return rule | {
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.summary or page.title},
        "help": {"text": page.text, "markdown": page.markdown},
        "defaultConfiguration": {"level": _LEVELS[page.severity]},
        "properties": {"tags": ["parallelism", f"section-{page.section}"]},
    }


def _invocation(report: Report) -> dict[str, Any]:
    notes = [
        {"level": "error", "message": {"text": c.error}, "locations": [_location(c.file)]}
        for c in report.unreadable
    ]
    return {"executionSuccessful": not notes, "toolExecutionNotifications": notes}


def _result(finding: Finding, mark: str, codes: Sequence[str], texts: Texts) -> dict[str, Any]:
    code = finding.code or UNCODED
    result: dict[str, Any] = {
        "ruleId": code,
        "ruleIndex": codes.index(code),
        "level": _LEVELS[finding.severity],
        "message": {"text": words(finding)},
        "partialFingerprints": {"meshwright/v1": mark},
    }
    if finding.file:
        result["locations"] = [_location(finding.file, _region(finding))]
    related = [
        _location(at.file, _span(at.line, at.column, at.length)) | {"message": {"text": at.text}}
        for at in finding.labels
        if at.file and at.text
    ]
    if related:
        result["relatedLocations"] = [{"id": n} | place for n, place in enumerate(related, 1)]
    if finding.edits:
        result["fixes"] = [_fix(finding, texts)]
    return result


def _location(file: str, region: dict[str, int] | None = None) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri(file)}}
    if region:
        physical["region"] = region
    return {"physicalLocation": physical}


def uri(file: str) -> str:
    """A relative reference from the working folder, or a file URI."""
    name = relative(file)
    return quote(f"file://{name}" if name.startswith("/") else name, safe="/:~")


def _region(finding: Finding) -> dict[str, int] | None:
    """The stretch that a finding is about; None for a whole file."""
    if not finding.line:
        return None
    at = finding.own_label
    return _span(finding.line, finding.column, at.length if at else 0)


def _span(line: int, column: int, length: int) -> dict[str, int]:
    region = {"startLine": max(line, 1)}
    if column:
        region["startColumn"] = column
        if length:
            region["endColumn"] = column + length
    return region


def _fix(finding: Finding, texts: Texts) -> dict[str, Any]:
    """The edits of a finding, by file."""
    changes: dict[str, list[Edit]] = {}
    for edit in finding.edits:
        changes.setdefault(edit.file, []).append(edit)
    safe = "" if is_fixable(finding) else " (may change the plan)"
    return {
        "description": {"text": f"{finding.hint or 'mend it'}{safe}"},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": uri(file)},
                "replacements": [_replacement(edit, Lines(texts[file])) for edit in edits],
            }
            for file, edits in changes.items()
        ],
    }


def _replacement(edit: Edit, lines: Lines) -> dict[str, Any]:
    start, end = lines.place(edit.start), lines.place(edit.end)
    region = {
        "startLine": start.line,
        "startColumn": start.column,
        "endLine": end.line,
        "endColumn": end.column,
    }
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}
