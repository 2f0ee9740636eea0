"""Carrying out the edits of findings: each finding's whole or not at all, none over another."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.report.check.report import is_fixable

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from meshwright.base.finding import Edit, Finding
    from meshwright.report.check.report import Report


_LINE = pattern(r"[^\n]*\n|[^\n]+")
_UNENDED = "\n\\ No newline at end of file\n"


MOST_PASSES = 20
_UNKNOWN_KEY = "CFG101"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """New texts of the files that change, and the findings whose edits they carry out."""

    texts: Mapping[str, str]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is left after all fixes, new texts of the files that change, how many were fixed."""

    report: Report
    texts: Mapping[str, str]
    count: int = 0


def settle(
    report: Report,
    recheck: Callable[[Mapping[str, str]], Report],
    *,
    unsafe: bool = False,
    untouched: Container[str] = (),
) -> Settled:
    """Fixes and checks in turn until there is nothing more to fix.

    `recheck` returns the report on texts that count instead of the files' contents. Of fixes that
    may change the plan one is made at a time, since each is worked out for the plan as it stands;
    one that brings more errors than it found is undone and not tried again. What is only predicted
    once the plan is legal (memory) is told and not fixed, as no one has seen it yet. Files of
    `untouched` stay as they are.
    """
    settled = Settled(report=report, texts={})
    seen = {finding.code for finding in report.findings}
    worse: set[str] = set()
    for _ in range(MOST_PASSES):
        now = {f: t for f, t in settled.report.sources.items() if f not in untouched}
        told = (f for f in settled.report.findings if f.code in seen or not _is_predicted(f))
        left = [f for f in told if _name(f) not in worse]
        fixed = fix(left, now, unsafe=unsafe)
        if not fixed.texts:
            break
        texts = {**settled.texts, **fixed.texts}
        after = recheck(texts)
        spelled = all(map(_is_spelling, fixed.findings))
        if not spelled and _errors(after) > _errors(settled.report):
            worse.update(map(_name, fixed.findings))
            continue
        count = settled.count + len(fixed.findings)
        settled = Settled(report=after, texts=texts, count=count)
    return settled


def _is_spelling(finding: Finding) -> bool:
    """Whether a finding's fix only spells a key as the framework does."""
    return finding.code == _UNKNOWN_KEY and is_fixable(finding)


def _name(finding: Finding) -> str:
    return f"{finding.code} {finding.message}"


def _errors(report: Report) -> tuple[int, int]:
    """Errors of legality, which come first, and of prediction, which needs a legal plan."""
    errors = [f for f in report.findings if f.severity is Severity.ERROR]
    predicted = sum(map(_is_predicted, errors))
    return len(errors) - predicted, predicted


def _is_predicted(finding: Finding) -> bool:
    """Whether a finding weighs a prediction of memory or time."""
    from meshwright.rules.rule import find_rule

    rule = find_rule(finding.code)
    return rule is not None and rule.predictive


def fix(findings: Iterable[Finding], texts: Mapping[str, str], *, unsafe: bool = False) -> Fixed:
    """The texts after the edits of all findings that are safe to fix, and of one that is not.

    A finding that edits what an earlier one already does is left for the next check, as is one that
    edits a file that is not among `texts`. Misspelt keys come before all else, as what they state
    would otherwise be added beside them.
    """
    from meshwright.frameworks.text.edit import apply

    taken: list[Edit] = []
    mended: list[Finding] = []
    changed_plan = False
    every = tuple(findings)
    for finding in tuple(filter(_is_spelling, every)) or every:
        safe = is_fixable(finding)
        if not safe and (changed_plan or not is_fixable(finding, unsafe=unsafe)):
            continue
        more = _taken(finding, texts, taken)
        if more is not None:
            taken, mended = more, [*mended, finding]
            changed_plan = changed_plan or not safe
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
        others = [other for other in edits if other.file == edit.file]
        beside = [o for o in others if not (_adds_at(o, edit) and o in finding.edits)]
        if not _fits(edit, texts, beside):
            return None
        edits.append(edit)
    return edits


def _fits(edit: Edit, texts: Mapping[str, str], others: Iterable[Edit]) -> bool:
    """Whether an edit lies within its file and clear of other edits."""
    inside = edit.file in texts and 0 <= edit.start <= edit.end <= len(texts[edit.file])
    return inside and all(_clear(edit, other) for other in others)


def _adds_at(one: Edit, other: Edit) -> bool:
    """Whether two edits add text at one place: those of one finding then follow one another."""
    return one.start == one.end == other.start == other.end


def _clear(one: Edit, other: Edit) -> bool:
    """Whether two edits touch different stretches; two insertions at one place do not."""
    if (one.start, one.end) == (other.start, other.end):
        return False
    return one.end <= other.start or other.end <= one.start


def diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A unified diff of the files that change, as `patch` reads it."""
    lines: list[str] = []
    for file in sorted(after):
        old, new = (_LINE.findall(text) for text in (before[file], after[file]))
        lines += unified_diff(old, new, f"a/{file}", f"b/{file}")
    return "".join(line if line.endswith("\n") else f"{line}{_UNENDED}" for line in lines)
