"""The names that all frameworks share for what their fields set, from `variables.csv`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError, UnknownName
from meshwright.base.names import nearest
from meshwright.base.noun import dataclass
from meshwright.base.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_NOTHING = frozenset({"none", "null", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One shared name: its group, the type of its values and what it means."""

    name: str
    group: str
    type: str
    meaning: str


@cache
def variables() -> Mapping[str, Variable]:
    """Every variable by name, in the order of the file."""
    return {
        row["variable"]: Variable(
            name=row["variable"], group=row["group"], type=row["type"], meaning=row["meaning"]
        )
        for row in rows_of(__package__, "variables.csv")
    }


def read_variable(name: str, value: Any) -> Any:
    """The value that a user states for a variable, as `--set name=value`.

    Raises UnknownName for a name that is none, MeshwrightError for a value of another type.
    """
    known = variables().get(name)
    if known is None:
        raise UnknownName("variable", name, suggestions=nearest(name, variables()))
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in _NOTHING and "?" in known.type:
        return None
    try:
        return _typed(known.type.rstrip("?"), text)
    except ValueError:
        message = f"{name} = {text!r} is not {known.type}"
        raise MeshwrightError(message, hint=f"{name}: {known.meaning}") from None


def _typed(kind: str, text: str) -> Any:
    if "bool" in kind and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if kind in ("list", "tuple") or "list" in kind:
        return [_number(part) for part in text.strip("[]()").split(",") if part.strip()]
    if kind == "bool":
        raise ValueError
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    return _number(text) if kind == "any" else text


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return _WORDS.get(text.strip().lower(), text.strip().strip("'\""))
