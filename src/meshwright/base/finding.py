"""Findings: what is wrong with what the user gave, where, why, and what to type next."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_OK = 0
EXIT_FINDINGS = 1  # findings at error level, or no plan that fits
EXIT_USAGE = 2  # wrong usage, an unreadable file, or an internal error
EXIT_INTERRUPTED = 130


class Severity(IntEnum):
    """How bad. An error stops the job or makes it wrong; a warning wastes; info only tells."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """The name as printed."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A stretch of a file with a few words about it: "tp=8 here".

    `line` and `column` count from 1; `length` is that of the stretch in its line, at least 1.
    """

    text: str
    file: str
    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replaces the characters from `start` up to `end` of a file by `text`.

    `safe` means that the file keeps its meaning, or gets the one that its writer stated.
    """

    file: str
    start: int
    end: int
    text: str
    safe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know about an input.

    `line` and `column` count from 1; 0 means unknown. `key` is the dotted path of the value, and
    `value` what stood there. `reason` says why it is wrong and `hint` what to write instead.
    `labels` point at every value involved, `consequence` says what happens if nothing is done
    (with the framework's own error where it raises one), `confidence` how that is known, `source`
    where, and `notes` what was assumed or which versions disagree. `edits` carry out the hint.
    """

    message: str
    code: str = ""
    severity: Severity = Severity.ERROR
    file: str = ""
    line: int = 0
    column: int = 0
    key: str = ""
    value: Any = None
    reason: str = ""
    hint: str = ""
    labels: tuple[Label, ...] = ()
    consequence: str = ""
    confidence: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()

    @property
    def location(self) -> str:
        """`file:line:column`, as far as it is known."""
        numbers = [str(n) for n in (self.line, self.column) if n]
        return ":".join([self.file, *numbers] if self.file else [])

    @property
    def own_label(self) -> Label | None:
        """The label at the place of the finding itself, if one of its labels stands there."""
        here = (self.file, self.line, self.column)
        return next((m for m in self.labels if (m.file, m.line, m.column) == here), None)

    def one_line(self) -> str:
        """Place and message, for logs and exception texts."""
        place = self.location
        return f"{place}: {self.message}" if place else self.message

    def replace(self, **changes: Any) -> Finding:
        """A copy with some fields changed."""
        return replace(self, **changes)


def exit_code(findings: Iterable[Finding]) -> int:
    """1 when any finding is an error, else 0."""
    failed = any(finding.severity is Severity.ERROR for finding in findings)
    return EXIT_FINDINGS if failed else EXIT_OK
