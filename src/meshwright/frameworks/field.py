"""A framework's table of fields: one row per setting that it knows."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.names import nearest
from meshwright.base.noun import dataclass
from meshwright.base.rows import rows_of
from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPES = ("int", "float", "bool", "flag", "off-flag", "str", "ints", "strs", "any")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_MOST = 2**63  # a default of some frameworks; nothing that is set on purpose is larger
_TO_BE_GIVEN = "???"
_WORD_OF = {"int": "a whole number", "float": "a number", "bool": "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One setting of a framework.

    `variable` is the name that all frameworks share for what it sets, "" where no other has it.
    `type` is one of `TYPES`: a flag is true when present, an off-flag makes its variable false;
    ints and strs are lists. It exists from version `since` to `until` included ("": always).
    """

    name: str
    variable: str = ""
    aliases: tuple[str, ...] = ()
    type: str = "str"
    default: Any = None
    since: str = ""
    until: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    meaning: str = ""

    def exists_in(self, version: str) -> bool:
        """Whether a version has the field; "" and a name as "main" are the newest."""
        wanted = release(version)
        if not wanted:
            return not self.until
        return (not self.since or wanted >= release(self.since)) and (
            not self.until or wanted[: len(release(self.until))] <= release(self.until)
        )

    def read(self, value: Any) -> tuple[Any, str]:
        """The typed value, and why it is none ("" if it is); a word of the choices is its own.

        OmegaConf's "???" stands for a value that is to be given when the program is started.
        """
        if value == _TO_BE_GIVEN:
            return UNKNOWN, ""
        if value is UNKNOWN or value is None or (isinstance(value, str) and value in self.choices):
            return value, ""
        try:
            return _typed(self.type, value), ""
        except OverflowError:
            return None, "is absurdly large"
        except (ValueError, TypeError):
            return None, f"is not {_WORD_OF.get(self.type, self.type)}"


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, "0.16.1" as (0, 16, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _typed(kind: str, value: Any) -> Any:
    """`value`, perhaps text, as `kind`; ValueError when it is not."""
    if kind == "any":
        return value
    if kind in ("ints", "strs"):
        return [_typed(kind[:-1], item) for item in _items(value)]
    if kind in ("flag", "off-flag", "bool"):
        return _truth(value)
    if kind == "str":
        return value if isinstance(value, str) else _plain(value)
    if isinstance(value, bool):
        raise ValueError
    if kind == "float":
        return _bounded(float(value))
    number = float(value.replace("_", "")) if isinstance(value, str) else value
    if number != int(number):
        raise ValueError
    return _bounded(
        int(value.replace("_", ""))
        if isinstance(value, str) and "e" not in value.lower() and "." not in value
        else int(number)
    )


def _bounded(number: Any) -> Any:
    """A number that some setting may have; OverflowError for larger ones, ValueError for nan."""
    if math.isnan(number):
        raise ValueError
    if abs(number) > _MOST:
        raise OverflowError
    return number


def _items(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        return [part for part in re.split(r"[\s,]+", value.strip("[]() ")) if part]
    return [value]


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Table:
    """The fields of one framework, found by any spelling."""

    def __init__(self, framework: str, fields: Iterable[Field]) -> None:
        self.framework = framework
        self.fields = tuple(fields)
        self._by_name: dict[str, list[Field]] = {}
        self._by_variable: dict[str, list[Field]] = {}
        for item in self.fields:
            self._by_variable.setdefault(item.variable, []).append(item)
            for spelling in (item.name, *item.aliases):
                self._by_name.setdefault(plain_name(spelling), []).append(item)
        self._below = tuple(n[:-1] for n in self._by_name if n.endswith(".*"))

    def find(self, spelled: str, version: str = "") -> Field | None:
        """The field that a spelling means in a version, or else in any other."""
        name = plain_name(spelled)
        rows = self._by_name.get(name) or self._opaque(name)
        return next((f for f in rows if f.exists_in(version)), rows[0] if rows else None)

    def _opaque(self, name: str) -> list[Field]:
        """The row of a group whose members the table does not list, as "scheduler.params.*"."""
        head = next((b for b in self._below if name.startswith(b)), None)
        return [] if head is None else self._by_name[head + "*"]

    def of_variable(self, variable: str, version: str = "") -> tuple[Field, ...]:
        """The fields of a version that set a variable."""
        return tuple(f for f in self._by_variable.get(variable, ()) if f.exists_in(version))

    def named(self, name: str, version: str = "") -> Field:
        """The field of a known name."""
        found = self.find(name, version)
        if found is None:
            raise MeshwrightError(f"{self.framework} has no field {name!r}")
        return found

    def nearest(self, spelled: str) -> tuple[str, ...]:
        """Names of fields that `spelled` may have meant."""
        return nearest(spelled, [f.name for f in self.fields])


def plain_name(spelled: str) -> str:
    """A spelling without what does not tell fields apart: leading "-" or "+", "-" for "_", case."""
    return spelled.lstrip("-+").replace("-", "_").lower()


@lru_cache(maxsize=64)
def load_table(package: str, framework: str) -> Table:
    """The table in `fields.csv` of a framework's package.

    Its columns are the names of `Field`'s attributes; lists are separated by blanks.
    """
    return Table(framework, [_row(framework, row) for row in rows_of(package, "fields.csv")])


def _row(framework: str, row: dict[str, str]) -> Field:
    kind = row.get("type") or "str"
    if kind not in TYPES:
        raise MeshwrightError(f"{framework}: field {row['name']} has no type {kind!r}")
    return Field(
        name=row["name"],
        variable=row.get("variable") or "",
        aliases=tuple((row.get("aliases") or "").split()),
        type=kind,
        default=_default(kind, row.get("default") or ""),
        since=row.get("since") or "",
        until=row.get("until") or "",
        unit=row.get("unit") or "",
        choices=tuple((row.get("choices") or "").split()),
        meaning=row.get("meaning") or "",
    )


def _default(kind: str, text: str) -> Any:
    """A default as the table writes it: empty for none, otherwise as a file would."""
    if kind == "flag":
        return False
    if kind == "off-flag":
        return True
    return None if text == "" else _typed(kind, "" if text == '""' else text)
