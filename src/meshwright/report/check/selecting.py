"""Which findings are wanted: by code or its beginning, and by comments in the files themselves.

export NCCL_ALGO=Ring  # meshwright: ignore[COM101]     findings that point at this line
# meshwright: ignore[MOD, COM2] known, see issue 12     alone on its line: the whole file
# meshwright: ignore                                    every code
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.errors import UnknownName
from meshwright.base.finding import Severity
from meshwright.base.names import nearest
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from meshwright.base.finding import Finding

_COMMENT = pattern(r"#[ \t]{0,8}meshwright:[ \t]{0,8}ignore\b(?:\[([^\]\n]{0,400})\])?", re.I)
_WORD = "meshwright:"


@dataclass(frozen=True, slots=True)
class Silence:
    """Codes, by their beginnings, that a comment silences on a line, or (line 0) in its file."""

    file: str
    line: int
    codes: tuple[str, ...]


def codes_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The codes, or beginnings of codes, in options such as "MOD,COM2"; UnknownName for others."""
    chosen = [part.strip().upper() for text in texts for part in text.split(",") if part.strip()]
    if chosen:
        known = _known_codes()
        for code in chosen:
            if not any(name.startswith(code) for name in known):
                raise UnknownName("rule", code, suggestions=nearest(code, known))
    return tuple(chosen)


def _known_codes() -> list[str]:
    from meshwright.frameworks.complaints import CODES
    from meshwright.rules.catalogue import catalogue

    return [*(entry.code for entry in catalogue()), *CODES]


def wanted(
    findings: Iterable[Finding], *, select: Sequence[str] = (), ignore: Sequence[str] = ()
) -> Iterator[Finding]:
    """Findings whose code is selected and not ignored; the longer of two beginnings
    decides, of equal ones the ignored.

    An error without a code, such as a file that is not in its syntax, is always wanted.
    """
    for finding in findings:
        if not finding.code:
            if finding.severity is Severity.ERROR or not select:
                yield finding
            continue
        chosen = _longest(finding.code, select) if select else 0
        if chosen > _longest(finding.code, ignore):
            yield finding


def _longest(code: str, beginnings: Iterable[str]) -> int:
    """Length of the longest beginning that a code has, -1 if it has none."""
    return max((len(b) for b in beginnings if code.startswith(b)), default=-1)


def silences(texts: Mapping[str, str]) -> list[Silence]:
    """What comments in the files silence."""
    return [s for file, text in texts.items() if _WORD in text.lower() for s in _in(file, text)]


def _in(file: str, text: str) -> Iterator[Silence]:
    for number, line in enumerate(text.split("\n"), start=1):
        found = _COMMENT.search(line)
        if found:
            listed = (found[1] or "").upper().split(",")
            codes = tuple(code.strip() for code in listed if code.strip())
            alone = not line[: found.start()].strip()
            yield Silence(file, 0 if alone else number, codes)


def is_silenced(finding: Finding, by: Iterable[Silence]) -> bool:
    """Whether a comment silences a finding: one at a line, or in a file, that it points at."""
    places = {(finding.file, finding.line), *((m.file, m.line) for m in finding.labels)}
    files = {file for file, _ in places}
    return any(
        (s.file in files if not s.line else (s.file, s.line) in places)
        and (not s.codes or finding.code.startswith(s.codes))
        for s in by
    )
