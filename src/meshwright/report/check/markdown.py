"""For a comment on a pull request: a table of files, then each finding with its lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.report.check.frame import frame
from meshwright.report.check.tally import tally_lines
from meshwright.report.check.visible import harmless
from meshwright.report.findings import remarks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.base.finding import Finding
    from meshwright.report.check.report import Report
    from meshwright.report.check.texts import Texts

_SPECIAL = pattern(r"([\\`*_\[\]<>#|~@])")


def render(report: Report, texts: Texts) -> str:
    """The report as GitHub-flavored Markdown."""
    lines = ["### meshwright check", "", *(escaped(line) for line in tally_lines(report)), ""]
    lines += _files(report)
    for finding in report.findings:
        lines += [*_finding(finding, texts), ""]
    return "\n".join(lines).rstrip() + "\n"


def _files(report: Report) -> list[str]:
    """A table of what each configuration amounts to; nothing where nothing is known."""
    rows = [
        f"| {code(c.file)} | {escaped(c.summary or c.error)} |"
        for c in report.files
        if c.summary or c.error
    ]
    return ["| file | what it is |", "| --- | --- |", *rows, ""] if rows else []


def _finding(finding: Finding, texts: Texts) -> Iterator[str]:
    """One finding: its headline, the lines it is about, what is known of it."""
    name = f" {finding.code}" if finding.code else ""
    place = f" at {code(finding.location)}" if finding.location else ""
    yield f"**{finding.severity.label}{name}**: {escaped(finding.message)}{place}"
    drawn = frame(finding, texts)
    if drawn:
        fence = _fence("\n".join(drawn))
        yield from ("", f"{fence}text", *drawn, fence)
    listed = [f"- {word}: {escaped(text)}" for word, text in remarks(finding)]
    if listed:
        yield from ("", *listed)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", harmless(text).replace("\n", " "))


def code(text: str) -> str:
    """Text in a code span, whatever it holds."""
    text = harmless(text).replace("\n", " ").replace("|", "\\|")
    fence = "`" * (_longest_run(text) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def _fence(text: str) -> str:
    return "`" * max(3, _longest_run(text) + 1)


def _longest_run(text: str) -> int:
    """Backticks in the longest run of them."""
    return max(map(len, re.findall(r"`+", text)), default=0)
