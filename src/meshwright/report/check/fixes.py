"""Carrying out the edits of findings: each finding's whole or not at all, none over another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING

from meshwright.report.check.report import is_fixable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.base.finding import Edit, Finding


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_UNENDED = "\n\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """New texts of the files that change, and the findings whose edits they carry out."""

    texts: Mapping[str, str]
    findings: tuple[Finding, ...]


def fix(findings: Iterable[Finding], texts: Mapping[str, str], *, unsafe: bool = False) -> Fixed:
    """The texts after the edits of all fixable findings.

    A finding that edits what an earlier one already does is left for the next check, as is one that
    edits a file that is not among `texts`.
    """
    taken: list[Edit] = []
    mended: list[Finding] = []
    for finding in findings:
        if is_fixable(finding, unsafe=unsafe):
            more = _taken(finding, texts, taken)
            if more is not None:
                taken, mended = more, [*mended, finding]
    changed = {
        file: apply(texts[file], [edit for edit in taken if edit.file == file])
        for file in dict.fromkeys(edit.file for edit in taken)
    }
    kept = {file: text for file, text in changed.items() if text != texts[file]}
    return Fixed(texts=kept, findings=tuple(mended))


def _taken(finding: Finding, texts: Mapping[str, str], taken: list[Edit]) -> list[Edit] | None:
    """`taken` and the edits of a finding, None where they cannot all be carried out."""
    edits = list(taken)
    for edit in finding.edits:
        if edit in edits:
            continue
        if not _fits(edit, texts, [other for other in edits if other.file == edit.file]):
            return None
        edits.append(edit)
    return edits


def _fits(edit: Edit, texts: Mapping[str, str], others: Iterable[Edit]) -> bool:
    """Whether an edit lies within its file and clear of other edits."""
    inside = edit.file in texts and 0 <= edit.start <= edit.end <= len(texts[edit.file])
    return inside and all(_clear(edit, other) for other in others)


def _clear(one: Edit, other: Edit) -> bool:
    """Whether two edits touch different stretches; two insertions at one place do not."""
    if (one.start, one.end) == (other.start, other.end):
        return False
    return one.end <= other.start or other.end <= one.start


def apply(text: str, edits: Iterable[Edit]) -> str:
    """`text` with edits that do not overlap carried out."""
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A unified diff of the files that change, as `patch` reads it."""
    lines: list[str] = []
    for file in sorted(after):
        old, new = (_LINE.findall(text) for text in (before[file], after[file]))
        lines += unified_diff(old, new, f"a/{file}", f"b/{file}")
    return "".join(line if line.endswith("\n") else f"{line}{_UNENDED}" for line in lines)
