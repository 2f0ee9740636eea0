"""Findings as text: what, where with the lines of the file, why, and what to type next."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from meshwright.report.check.frame import frame, margin_of
from meshwright.report.check.tally import counted
from meshwright.report.check.texts import Texts
from meshwright.report.check.visible import harmless
from meshwright.report.rules import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.base.errors import MeshwrightError
    from meshwright.base.finding import Edit, Finding, Label


def finding_lines(finding: Finding, texts: Texts | None = None) -> list[str]:
    """One finding with its place, the lines it is about, and what is known of it."""
    margin = " " * margin_of(finding)
    lines = [headline(finding), *frame(finding, Texts() if texts is None else texts)]
    for word, text in remarks(finding):
        first, *rest = harmless(text).split("\n")
        lines.append(f"{margin} = {word}: {first}")
        lines += [f"{margin}   {' ' * len(word)}  {line}".rstrip() for line in rest]
    return lines


def headline(finding: Finding) -> str:
    """Severity, code and message: "error[MOD103]: 2 KV heads do not divide by tp 8"."""
    code = f"[{finding.code}]" if finding.code else ""
    return f"{finding.severity.label}{code}: {harmless(finding.message)}"


def remarks(finding: Finding) -> Iterator[tuple[str, str]]:
    """What stands below the frame, as pairs of a word and a text."""
    if finding.reason and finding.reason not in finding.message:
        yield "why", finding.reason
    if finding.consequence:
        yield "consequence", finding.consequence
    if sure := sureness(finding):
        yield "sure", sure
    for note in finding.notes:
        yield "note", note
    if finding.hint:
        yield "help", finding.hint


def words(finding: Finding) -> str:
    """All that a finding says, without the lines it is about."""
    return "\n".join([finding.message, *(f"{word}: {text}" for word, text in remarks(finding))])


def sureness(finding: Finding) -> str:
    """How a finding is known, with the source: "read in the framework's source (file, version)"."""
    known = evidence(finding.confidence) if finding.confidence else ""
    if known and finding.source:
        return f"{known} ({finding.source})"
    return known or finding.source


def findings_lines(findings: Sequence[Finding]) -> list[str]:
    """All findings, a blank line between them, and a tally when there are several."""
    texts = Texts()
    lines = [line for finding in findings for line in (*finding_lines(finding, texts), "")]
    return [*lines, counted(findings)] if len(findings) > 1 else lines[:-1]


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
        "consequence": finding.consequence,
        "confidence": finding.confidence,
        "source": finding.source,
        "notes": list(finding.notes),
        "labels": [_record(label) for label in finding.labels],
        "edits": [_record(edit) for edit in finding.edits],
    }


def _record(part: Label | Edit) -> dict[str, Any]:
    """A label or an edit by field."""
    return {field.name: getattr(part, field.name) for field in fields(part)}
