"""Findings as text: what, where with the line of the file, why, and what to type next."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.locate import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST_LINE = 120


def finding_lines(finding: Finding) -> list[str]:
    """One finding with its place, the line it is about, and its hint."""
    code = f"[{finding.code}]" if finding.code else ""
    lines = [f"{finding.severity.label}{code}: {finding.message}"]
    if finding.location:
        lines += [f"  --> {finding.location}", *_frame(finding)]
    if finding.reason and finding.reason not in finding.message:
        lines.append(f"  why: {finding.reason}")
    if finding.hint:
        lines.append(f"  help: {finding.hint}")
    return lines


def findings_lines(findings: Sequence[Finding]) -> list[str]:
    """All findings, a blank line between them, and a tally when there are several."""
    lines = [line for finding in findings for line in (*finding_lines(finding), "")]
    return [*lines, tally(findings)] if len(findings) > 1 else lines[:-1]


def tally(findings: Iterable[Finding]) -> str:
    """How many of each severity: "2 errors, 1 warning"."""
    counts = Counter(finding.severity for finding in findings)
    words = [
        f"{counts[s]} {s.label}{'s' if counts[s] > 1 and s is not Severity.INFO else ''}"
        for s in sorted(counts, reverse=True)
    ]
    return ", ".join(words) or "nothing found"


def error_lines(error: MeshwrightError) -> list[str]:
    """An error and its hint, or the findings that it carries."""
    findings = getattr(error, "findings", ())
    if findings:
        return findings_lines(findings)
    hint = [f"hint: {error.hint}"] if error.hint else []
    return [f"error: {error.message}", *hint]


def error_record(error: MeshwrightError) -> dict[str, Any]:
    """An error for JSON: message, hint, and the findings that it carries."""
    findings = [finding_record(finding) for finding in getattr(error, "findings", ())]
    return {"error": {"message": error.message, "hint": error.hint, "findings": findings}}


def finding_record(finding: Finding) -> dict[str, Any]:
    """A finding for JSON."""
    value = finding.value
    return {
        "code": finding.code,
        "severity": finding.severity.label,
        "message": finding.message,
        "file": finding.file,
        "line": finding.line,
        "column": finding.column,
        "key": finding.key,
        "value": value if isinstance(value, str | int | float | bool | None) else repr(value),
        "reason": finding.reason,
        "hint": finding.hint,
    }


def _frame(finding: Finding) -> list[str]:
    """The line of the file under the finding's place, with a caret below its column."""
    source = _source_line(finding)
    if not source or len(source) > _LONGEST_LINE:
        return []
    number = str(finding.line)
    margin = " " * len(number)
    lines = [f" {margin} |", f" {number} | {source}"]
    if finding.column:
        width = max(1, len(source.split("#")[0].rstrip()) - finding.column + 1)
        lines.append(f" {margin} | {' ' * (finding.column - 1)}{'^' * width}")
    return lines


def _source_line(finding: Finding) -> str:
    """The text of the line, "" when the file cannot be read again."""
    if not finding.file or not finding.line:
        return ""
    try:
        lines = read_text(finding.file).splitlines()
    except MeshwrightError:
        return ""
    return lines[finding.line - 1].replace("\t", " ") if finding.line <= len(lines) else ""
