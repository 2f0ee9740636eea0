"""Names by which anyone may mean a variable: a list of our own, then every framework's."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.frameworks.field import Field, Table, load_table, plain_name
from meshwright.frameworks.variables import variables

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "meshwright.frameworks.generic"
_PLAIN_ENDS = ("size", "degree", "value")  # "parallel.tensor.size" is "parallel.tensor"
_SAME = frozenset({"int", "float", "bool", "str"})
_VAGUE = frozenset(
    {"n", "path", "name", "type", "enable", "size", "value", "mode", "config", "model"}
)
"""Last parts that mean nothing without what stands in front of them."""


class AnyTable(Table):
    """A table that also finds a field by the last parts of a dotted name."""

    def find(self, spelled: str, version: str = "") -> Field | None:
        """The field that any part of a name means; the whole name counts most."""
        for name in _parts(plain_name(spelled)):
            if (found := super().find(name, version)) is not None:
                return found
        return None


def _parts(name: str) -> Iterator[str]:
    """A dotted name, then what is left when words go from its front, or a vague one at its end."""
    words = name.split(".")
    for start in range(len(words)):
        tail = words[start:]
        if start == 0 or tail[0] not in _VAGUE or len(tail) > 1:
            yield ".".join(tail)
    if len(words) > 1 and words[-1] in _PLAIN_ENDS:
        yield from _parts(".".join(words[:-1]))


@cache
def any_table() -> AnyTable:
    """Usual names, and behind them the last parts of all frameworks' names; built once."""
    usual = load_table(PACKAGE, "generic").fields
    taken = {plain_name(s) for f in usual for s in (f.name, *f.aliases)}
    return AnyTable("generic", (*usual, *_of_others(taken)))


def _of_others(taken: set[str]) -> Iterator[Field]:
    """A field per variable that other frameworks have, under all names that mean only it."""
    names: dict[str, set[str]] = {}
    for spelling, variable in _others():
        if spelling not in taken:
            names.setdefault(spelling, set()).add(variable)
    by_variable: dict[str, list[str]] = {}
    for spelling, meant in sorted(names.items()):
        if len(meant) == 1:
            by_variable.setdefault(next(iter(meant)), []).append(spelling)
    for variable, spellings in sorted(by_variable.items()):
        own = variable if variable not in taken else spellings[0]
        yield Field(
            name=own,
            variable=variable,
            aliases=tuple(s for s in spellings if s != own),
            type=_kind(variable),
        )


def _others() -> Iterator[tuple[str, str]]:
    """Last parts of the names of every other framework's fields, with their variable."""
    from meshwright.frameworks.framework import all_frameworks

    for item in all_frameworks():
        if item.name == "generic":
            continue
        for field in item.table.fields:
            if not field.variable or field.type == "off-flag" or field.name.endswith(".*"):
                continue
            for spelling in (field.name, *field.aliases):
                last = plain_name(spelling).rsplit(".", 1)[-1]
                if last not in _VAGUE:
                    yield last, field.variable


def _kind(variable: str) -> str:
    known = variables().get(variable)
    kind = known.type.rstrip("?") if known is not None else "any"
    return kind if kind in _SAME else "any"
