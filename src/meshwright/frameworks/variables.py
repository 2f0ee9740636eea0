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
_PAIRS = "tuple[tuple["  # type of a variable that holds names with values
_FORMS = {"environment": "of the form NAME=value,NAME=value"}
_SHOWN = 60  # characters of a value that is refused
_COUNTS = frozenset({"num_gpus", "num_nodes", "gpus_per_node", "seq_len", "global_batch_size"})
_COUNTS |= {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}


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
        read = _typed(known.type.rstrip("?"), text)
    except ValueError:
        message = f"{name} = {text[:_SHOWN]!r} is not {_FORMS.get(name, known.type)}"
        hint = f"{name}: {known.meaning or _FORMS.get(name, known.type)}"
        raise MeshwrightError(message, hint=hint) from None
    _refuse_meaningless(name, read)
    return read


def _refuse_meaningless(name: str, value: Any) -> None:
    """MeshwrightError for a count below one, and for a word or degree that no plan holds."""
    from meshwright.plan.words import CHOICES, FIELDS, read_word

    if name in _COUNTS and type(value) is int and value < 1:
        hint = f"give a positive number, as --set {name}=8"
        raise MeshwrightError(f"{name} = {value} is not a positive number", hint=hint)
    is_judged = name in ("recompute", "schedule") or (name in FIELDS and name not in CHOICES)
    if not is_judged or not isinstance(value, int | str) or isinstance(value, bool):
        return
    problem = read_word(name, value)[1]
    if problem:
        raise MeshwrightError(f"{name} = {value!r} {problem.reason}", hint=problem.hint)


def _typed(kind: str, text: str) -> Any:
    if kind.startswith(_PAIRS):
        return dict(_pair(part) for part in text.split(",") if part.strip())
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


def _pair(text: str) -> tuple[str, str]:
    """Name and value of "NAME=value"; ValueError where it is none."""
    name, equals, value = text.strip().partition("=")
    if not equals or not name.isidentifier():
        raise ValueError
    return name, value


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return _WORDS.get(text.strip().lower(), text.strip().strip("'\""))
