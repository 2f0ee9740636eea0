"""Notes that say the same of many settings, as one finding that names them all.

A script may take forty values from outside and a recipe hold a hundred keys of its own program.
Each of them is a note; forty notes hide the error between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.base.finding import Finding

_PHRASES = {
    "CFG101": "are unknown, and not judged",
    "CFG105": "are not of the newest version",
    "CFG106": "{reason}: what hangs on them is not known",
    "CFG108": "are not there, so that what they say is not known",
}
_PLURAL = {"is": "are", "differs": "differ", "names": "name", "has": "have"}
_MOST_NAMED = 5
_MOST_LABELS = 6


def told_together(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, with one in place of notes that say the same of several settings of a file.

    Only notes of `_PHRASES` are merged; warnings and errors stand for themselves. The merged note
    has the place of the first and lists all names in its notes.
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    kept: list[Finding] = []
    for found in findings:
        if found.severity is Severity.INFO and found.code in _PHRASES and found.key:
            reason = found.reason if found.code == "CFG106" else ""
            groups.setdefault((found.code, found.file, reason), []).append(found)
        else:
            kept.append(found)
    return [*kept, *(_merged(group) for group in groups.values())]


def _merged(group: Sequence[Finding]) -> Finding:
    """One note for several of the same kind."""
    first = min(group, key=lambda f: (f.line, f.column))
    names = list(dict.fromkeys(_subject(f) for f in group))
    if len(names) == 1:
        return first
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    phrase = _PHRASES[first.code].format(reason=_plural(first.reason))
    return first.replace(
        message=f"{', '.join(names[:_MOST_NAMED])}{more} {phrase}",
        key="",
        value=None,
        reason="",
        hint="" if first.code == "CFG101" else first.hint,
        labels=tuple(label for f in group for label in f.labels)[:_MOST_LABELS],
        notes=(*first.notes, *((f"all of them: {', '.join(names)}",) if more else ())),
    )


def _subject(found: Finding) -> str:
    """What a note speaks of: a file by its name, all else by its key."""
    return str(shown(found.value)) if found.code == "CFG108" else found.key


def _plural(reason: str) -> str:
    """A reason that speaks of one thing, of several: "is set" becomes "are set"."""
    first, blank, rest = reason.partition(" ")
    return f"{_PLURAL.get(first, first)}{blank}{rest}"
