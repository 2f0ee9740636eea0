"""A parsed document: its values, and where each of them stands."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.base.problem import Problem

Key = tuple[str | int, ...]
Stretch = tuple[int, int]  # offsets into a text: the first character, and that behind the last
DEEPEST = 64  # levels of nesting that a configuration may have


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a text; both numbers count from 1."""

    line: int
    column: int


class Lines:
    """Turns offsets into a text into places."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def place(self, offset: int) -> Place:
        """Line and column of the character at `offset`."""
        line = bisect_right(self._starts, offset)
        return Place(line=line, column=offset - self._starts[line - 1] + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The plain values of a file (`data`), with the place of each key path that occurs in it.

    A mapping's entry is placed at its key, a list's entry at the value. `spans` holds the stretch
    of the value of each key path, quotes and brackets included, and `key_spans` that of the key of
    a mapping's entry. A value that an alias or merge key brings in is where its anchor stands.
    """

    data: Any
    file: str = ""
    places: Mapping[Key, Place] = field(default_factory=dict)
    spans: Mapping[Key, Stretch] = field(default_factory=dict)
    key_spans: Mapping[Key, Stretch] = field(default_factory=dict)

    def place(self, key: Key) -> Place | None:
        """Where `key` stands, or else the nearest enclosing key that has a place."""
        for length in range(len(key), -1, -1):
            found = self.places.get(key[:length])
            if found is not None:
                return found
        return None

    def value(self, key: Key) -> Any:
        """The value at `key`, None where the path breaks off."""
        node = self.data
        for part in key:
            try:
                node = node[part]
            except (KeyError, IndexError, TypeError):
                return None
        return node

    def key_of(self, dotted: str) -> Key:
        """The key path written as "links.0.domain", digits taken as list positions."""
        node, key = self.data, []
        for part in dotted.split(".") if dotted else ():
            step: str | int = int(part) if isinstance(node, list) and part.isdigit() else part
            key.append(step)
            node = self.value((*key,))
        return tuple(key)

    def finding(
        self,
        key: Key,
        message: str,
        *,
        reason: str = "",
        hint: str = "",
        code: str = "",
        severity: Severity = Severity.ERROR,
    ) -> Finding:
        """A finding about the value at `key`, placed in this file."""
        place = self.place(key)
        return Finding(
            message=message,
            code=code,
            severity=severity,
            file=self.file,
            line=place.line if place else 0,
            column=place.column if place else 0,
            key=dotted(key),
            value=self.value(key),
            reason=reason,
            hint=hint,
        )

    def problem(self, problem: Problem, *, under: Key = ()) -> Finding:
        """The finding of a problem whose key counts from the table at `under`."""
        key = self.key_of(".".join(part for part in (dotted(under), problem.key) if part))
        message = f"{dotted(key) or self.file} {problem.reason}"
        if problem.value is not None and problem.key:
            message = f"{dotted(key)} = {shown(problem.value)}: {problem.reason}"
        found = self.finding(key, message, reason=problem.reason, hint=problem.hint)
        return found.replace(value=problem.value)


def dotted(key: Key) -> str:
    """A key path as one word: "links.0.domain"."""
    return ".".join(str(part) for part in key)


def malformed(
    file: str, reason: str, *, place: Place | None = None, hint: str = ""
) -> InvalidInput:
    """The error for a text that is not in its syntax."""
    line, column = (place.line, place.column) if place else (0, 0)
    finding = Finding(
        message=reason,
        file=file,
        line=line,
        column=column,
        reason=reason,
        hint=hint or "mend the file at this place",
    )
    return InvalidInput([finding])
