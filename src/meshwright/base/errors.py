"""Errors a user may meet, each with a hint. The whole tree:

    MeshwrightError          cannot go on; `hint` says what to type next
      InvalidInput           something given is wrong; `findings` lists everything that is
      UnknownName            no such model, GPU, rule or term; `suggestions` are the nearest names
      InvalidUnit            a size, rate, duration or count that cannot be read

Errors raised elsewhere derive from one of these. A finding is preferred to an error wherever
several things can be wrong at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.names import question
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.base.finding import Finding


_SHOWN = ("model", "GPU", "rule", "schedule", "stack")  # kinds that `meshwright show` lists


class MeshwrightError(Exception):
    """Something that stops the command; its text is one sentence, `hint` what to do about it.

    `is_final`: to try the same again would end the same way.
    """

    is_final = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInput(MeshwrightError):  # noqa: N818 - says what it is, as KeyError's kin do
    """Input with one or more findings, all of them reported together."""

    is_final = True

    def __init__(self, findings: Iterable[Finding], *, hint: str = "") -> None:
        self.findings: tuple[Finding, ...] = tuple(findings)
        super().__init__("; ".join(finding.one_line() for finding in self.findings), hint=hint)


class UnknownName(MeshwrightError):  # noqa: N818
    """A name that is in no catalogue. `kind` is the noun ("model", "GPU", "rule", "term")."""

    def __init__(self, kind: str, name: str, *, suggestions: Sequence[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.suggestions = tuple(suggestions)
        listed = f"`meshwright show {kind.lower()}s` lists them" if kind in _SHOWN else ""
        super().__init__(
            f"unknown {kind} {shown(name)}",
            hint=question(self.suggestions) if self.suggestions else listed,
        )


class InvalidUnit(MeshwrightError, ValueError):  # noqa: N818
    """Text that is not a quantity of the wanted kind."""
