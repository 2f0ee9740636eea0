"""How much was found, in one line and by rule."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Severity
from meshwright.report.check.report import is_fixable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.base.finding import Finding
    from meshwright.base.table import Table
    from meshwright.report.check.report import Report

_BOTH = "--fix --unsafe-fixes"


def tally_lines(report: Report) -> list[str]:
    """ "Found 2 errors, 1 warning in 3 files (1 fixable with --fix)", and what was left out."""
    lines = [_found(report)]
    if report.skipped:
        lines.append(f"{_number(len(report.skipped), 'other file')} of no known framework")
    if report.unreadable:
        lines.append(f"{_number(len(report.unreadable), 'file')} could not be read")
    return lines


def _found(report: Report) -> str:
    findings = report.findings
    if not report.files:
        return "No configuration found"
    where = f" in {_number(sum(not c.error for c in report.files), 'file')}"
    words = counted(findings)
    if report.fixed:
        rest = f"; {words} left" if words else "; nothing is left"
        return f"Fixed {_number(report.fixed, 'finding')}{where}{rest}{_fixable(report)}"
    return f"Found {words}{where}{_fixable(report)}" if words else f"Nothing found{where}"


def _fixable(report: Report) -> str:
    """How many findings `--fix` would mend, and how many more with --unsafe-fixes."""
    safe = sum(is_fixable(finding) for finding in report.findings)
    more = sum(is_fixable(finding, unsafe=True) for finding in report.findings) - safe
    if report.unsafe:
        safe, more = safe + more, 0
    option = _BOTH if report.unsafe else "--fix"
    words = [f"{safe} fixable with {option}"] if safe else []
    if more:
        words.append(f"{more} more with --unsafe-fixes" if safe else f"{more} fixable with {_BOTH}")
    return f" ({', '.join(words)})" if words else ""


def counted(findings: Iterable[Finding]) -> str:
    """ "2 errors, 1 warning, 3 notes", the worst first, "" for none."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(_number(counts[s], noun(s)) for s in sorted(counts, reverse=True))


def noun(severity: Severity) -> str:
    """What one finding of a severity is called."""
    return "note" if severity is Severity.INFO else severity.label


def statistics(findings: Iterable[Finding], *, unsafe: bool = False) -> list[dict[str, Any]]:
    """Findings by code, most frequent first: code, severity, count, how many are fixable, title."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    rows = [
        {
            "code": code,
            "severity": max(f.severity for f in found).label,
            "count": len(found),
            "fixable": sum(is_fixable(f, unsafe=unsafe) for f in found),
            "title": title_of(code) or found[0].message,
        }
        for code, found in by_code.items()
    ]
    return sorted(rows, key=lambda row: (-int(str(row["count"])), str(row["code"])))


def title_of(code: str) -> str:
    """The title of a rule, a demand or a complaint about a text, "" where the code names none."""
    from meshwright.frameworks.complaints import CODES
    from meshwright.rules.catalogue import catalogue

    return CODES.get(code) or next((entry.title for entry in catalogue() if entry.code == code), "")


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def statistics_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """`statistics` as a table; [*] marks codes of which some findings are fixable."""
    from meshwright.base.table import Column, table_of

    columns = (
        Column(key="count", title="count", align="right"),
        Column(key="code", title="code"),
        Column(key="severity", title="severity"),
        Column(key="mark", title=""),
        Column(key="title", title="title"),
    )
    return table_of(columns, [{**row, "mark": "[*]" if row["fixable"] else ""} for row in rows])
