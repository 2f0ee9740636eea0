"""One dictionary of every knob: what each framework calls it, with default, versions and unit."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.frameworks.field import plain_name
from meshwright.frameworks.framework import all_frameworks
from meshwright.frameworks.variables import variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.frameworks.field import Field

OWN = "generic"  # its names are usual words, not a framework's


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """What one framework calls a variable.

    `default` is None where the framework has none; `since` and `until` are "" where the field is
    as old, or as new, as what was looked at.
    """

    framework: str
    field: str
    aliases: tuple[str, ...] = ()
    default: Any = None
    since: str = ""
    until: str = ""
    unit: str = ""
    meaning: str = ""

    @property
    def versions(self) -> str:
        """Versions that have it, as "0.1 to 0.2.2", "from 0.3", or "" for all."""
        if self.since and self.until:
            return f"{self.since} to {self.until}"
        if self.since:
            return f"from {self.since}"
        return f"up to {self.until}" if self.until else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One variable: its meaning, and its names by framework, newest field first."""

    variable: str
    group: str
    type: str
    meaning: str
    names: Mapping[str, tuple[Name, ...]]

    def __len__(self) -> int:
        """Number of frameworks that have it."""
        return len(self.names)

    @property
    def spellings(self) -> Mapping[str, tuple[str, ...]]:
        """The names of its fields by framework, newest first, each once."""
        return {f: tuple(dict.fromkeys(n.field for n in group)) for f, group in self.names.items()}


@cache
def dictionary() -> tuple[Entry, ...]:
    """Every variable that some framework has a field for, in the order of variables.csv."""
    named: dict[str, dict[str, list[Name]]] = {}
    for item in all_frameworks():
        if item.name == OWN:
            continue
        for field in item.table.fields:
            if field.variable:
                by_framework = named.setdefault(field.variable, {})
                by_framework.setdefault(item.name, []).append(_name(item.name, field))
    known = variables()
    order = [v for v in known if v in named] + sorted(v for v in named if v not in known)
    return tuple(_entry(variable, named[variable]) for variable in order)


def _name(framework: str, field: Field) -> Name:
    return Name(
        framework=framework,
        field=field.name,
        aliases=field.aliases,
        default=field.default,
        since=field.since,
        until=field.until,
        unit=field.unit,
        meaning=field.meaning,
    )


def _entry(variable: str, names: Mapping[str, list[Name]]) -> Entry:
    known = variables().get(variable)
    said = next((n.meaning for group in names.values() for n in group if n.meaning), "")
    return Entry(
        variable=variable,
        group=known.group if known else "",
        type=known.type if known else "",
        meaning=(known.meaning if known else "") or said,
        names={
            framework: tuple(sorted(group, key=lambda n: bool(n.until)))
            for framework, group in names.items()
        },
    )


def find(word: str) -> tuple[Entry, ...]:
    """Entries whose variable or any of whose names contains `word`, the best match first."""
    wanted = plain_name(word.strip())
    found = [(rank, e) for e in dictionary() if (rank := _rank(e, wanted)) is not None]
    return tuple(entry for _, entry in sorted(found, key=lambda pair: pair[0]))


def _rank(entry: Entry, wanted: str) -> int | None:
    """How well an entry matches, 0 best; None where it does not."""
    spellings = {plain_name(s) for s in _spellings(entry)}
    if wanted == entry.variable:
        return 0
    if wanted in spellings:
        return 1
    if any(s.rsplit(".", 1)[-1] == wanted for s in spellings):
        return 2
    return 3 if any(wanted in s for s in (entry.variable, *spellings)) else None


def _spellings(entry: Entry) -> Iterable[str]:
    for group in entry.names.values():
        for name in group:
            yield name.field
            yield from name.aliases


def shared(least: int = 2) -> tuple[Entry, ...]:
    """Entries that at least `least` frameworks have."""
    return tuple(entry for entry in dictionary() if len(entry) >= least)
