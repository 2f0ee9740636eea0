"""The lines of a file that a finding is about, with a caret under every value involved.

    --> train.sh:14:26
      |
    9 |   --num-query-groups 2 \\
      |                      ^ 2 KV heads there
    ...

The manner is rustc's. Long lines are windowed around the carets, tabs and wide characters measured.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.report.check.visible import harmless, shown_character, width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.base.finding import Finding
    from meshwright.report.check.texts import Texts

LONGEST = 120  # characters of a line that is shown whole
WINDOW = 96  # of a longer one
_BEFORE = 24  # characters of context before the first caret of a window
_CUT = "..."


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A stretch of one line with a text about it; `column` counts from 1."""

    line: int
    column: int
    length: int
    text: str


def margin_of(finding: Finding) -> int:
    """Characters that the longest line number of a finding takes."""
    return max(len(str(n)) for n in (finding.line, *(label.line for label in finding.labels)))


def frame(finding: Finding, texts: Texts) -> list[str]:
    """Where a finding is, and the lines that it is about; empty for one that has no place."""
    margin, lines = " " * margin_of(finding), []
    for number, (file, marks) in enumerate(_by_file(finding, texts).items()):
        first = finding.location if number == 0 else _place(file, marks[0])
        lines.append(f"{margin}{'-->' if number == 0 else ':::'} {harmless(first)}")
        lines += _rows(file, marks, texts, margin)
    return lines


def _by_file(finding: Finding, texts: Texts) -> dict[str, list[Mark]]:
    """Marks by file, that of the finding first, sorted, those of one stretch made one."""
    found: dict[str, list[Mark]] = {finding.file: []} if finding.location else {}
    for label in finding.labels:
        mark = Mark(label.line, max(label.column, 1), max(label.length, 1), harmless(label.text))
        found.setdefault(label.file, []).append(mark)
    if finding.location and not _covers(found[finding.file], finding):
        found[finding.file].append(_own(finding, texts))
    return {file: _merged(marks) for file, marks in found.items()}


def _covers(marks: Iterable[Mark], finding: Finding) -> bool:
    """Whether one of the marks is at the place of the finding."""
    return any(m.line == finding.line and m.column == finding.column for m in marks)


def _own(finding: Finding, texts: Texts) -> Mark:
    """The place of the finding itself: to the end of what stands in its line."""
    source = texts.line(finding.file, finding.line) or ""
    length = len(source.split("#")[0].rstrip()) - finding.column + 1
    return Mark(finding.line, finding.column, max(length, 1), "")


def _merged(marks: Iterable[Mark]) -> list[Mark]:
    """Sorted marks; where two are of one stretch, one with both texts."""
    merged: dict[tuple[int, int, int], list[str]] = {}
    for m in sorted(marks):
        merged.setdefault((m.line, m.column, m.length), []).append(m.text)
    return [
        Mark(*place, "; ".join(dict.fromkeys(text for text in texts if text)))
        for place, texts in merged.items()
    ]


def _place(file: str, mark: Mark) -> str:
    return f"{file}:{mark.line}:{mark.column}"


def _rows(file: str, marks: Sequence[Mark], texts: Texts, margin: str) -> list[str]:
    """The lines of one file with carets; where it cannot be read, the labels in words."""
    known = [m for m in marks if m.line and texts.line(file, m.line) is not None]
    rows = [f"{margin} |"] if known else []
    last = 0
    for number, group in groupby(known, key=lambda m: m.line):
        rows += _between(file, last, number, texts, margin)
        last = number
        rows += _line_rows(texts.line(file, number) or "", list(group), number, margin)
    rest = [m for m in marks if m not in known and m.text]
    return rows + [f"{margin} = at {_place(file, m)}: {m.text}" for m in rest]


def _between(file: str, last: int, number: int, texts: Texts, margin: str) -> list[str]:
    """What stands between two marked lines: nothing, the one line, or dots."""
    if not last or number == last + 1:
        return []
    only = texts.line(file, last + 1) or ""
    if number == last + 2 and len(only) <= LONGEST:
        return [f"{last + 1:>{len(margin)}} | {_printed(only)}".rstrip()]
    return [_CUT]


def _line_rows(source: str, marks: list[Mark], number: int, margin: str) -> list[str]:
    """One line of the source, in as many windows as its marks need, each with carets below."""
    rows: list[str] = []
    for start, end, inside in _windows(source, marks):
        head = _CUT if start else ""
        tail = _CUT if end < len(source) else ""
        text = head + _printed(source[start:end]) + tail
        rows.append(f"{number:>{len(margin)}} | {text}".rstrip())
        spans = [_span(source, start, end, len(head), m) for m in inside]
        rows += [f"{margin} | {row}".rstrip() for row in caret_rows(spans)]
    return rows


def _printed(text: str) -> str:
    return "".join(map(shown_character, text.rstrip()))


def _windows(source: str, marks: list[Mark]) -> list[tuple[int, int, list[Mark]]]:
    """Stretches of a line that hold its marks, as (start, end, marks inside)."""
    if len(source) <= LONGEST:
        return [(0, len(source), marks)]
    groups: list[list[Mark]] = []
    for m in marks:
        fits = groups and m.column + m.length - groups[-1][0].column <= WINDOW - _BEFORE
        if fits:
            groups[-1].append(m)
        else:
            groups.append([m])
    windows = []
    for group in groups:
        start = max(0, min(group[0].column - 1, len(source)) - _BEFORE)
        windows.append((start, min(len(source), start + WINDOW), group))
    return windows


def _span(source: str, start: int, end: int, head: int, m: Mark) -> tuple[int, int, str]:
    """A mark as (first column, columns, text) of the printed window; at least one column wide."""
    left = min(max(m.column - 1, start), end)
    right = min(left + m.length, end)
    at = head + width("".join(map(shown_character, source[start:left])))
    return at, max(width("".join(map(shown_character, source[left:right]))), 1), m.text


def caret_rows(spans: Sequence[tuple[int, int, str]]) -> list[str]:
    """Carets under (first column, columns, text), sorted by column, and the texts.

    The last text stands beside its carets, each other one under its own, led there by a bar.
    """
    row = _filled((column for at, n, _ in spans for column in range(at, at + n)), "^")
    rows = [f"{row} {spans[-1][2]}".rstrip()]
    waiting = [(at, text) for at, _, text in spans[:-1] if text]
    if waiting:
        rows.append(_filled((at for at, _ in waiting), "|"))
    while waiting:
        at, text = waiting.pop()
        rows.append(_filled((left for left, _ in waiting), "|").ljust(at)[:at] + text)
    return rows


def _filled(columns: Iterable[int], character: str) -> str:
    """A row with a character in some columns and blanks elsewhere."""
    taken = set(columns)
    return "".join(character if at in taken else " " for at in range(max(taken, default=-1) + 1))
