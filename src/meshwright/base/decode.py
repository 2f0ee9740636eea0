"""From a located document to typed values, with every mistake found at once.

The types are those of frozen dataclasses: their annotations say what each key must hold, their
defaults which keys may be left out. Lists become tuples; a tuple of (name, value) pairs is written
as a table; `X | None` is a key that may be absent; of several dataclasses the one whose fields fit
the keys best is taken; a NumPy alternative in an annotation is ignored, since a file holds scalars.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from meshwright.base.locate.document import Document, Key, dotted
from meshwright.base.names import did_you_mean
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.base.finding import Finding

REFUSED: Any = object()  # stands for a value that was wrong; its finding has been noted
LARGEST_INTEGER = 2**63 - 1
_DIGITS = re.compile(r"[+-]?[0-9]{1,18}")
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes"}
_EXAMPLES = {bool: "true or false", int: "it as 8", float: "it as 1.5", str: 'it as "text"'}


class Decoder:
    """Reads typed values from one document; `findings` collects what was wrong with them."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def refuse(self, key: Key, reason: str, *, hint: str = "") -> Any:
        """Notes that the value at `key` is wrong and returns `REFUSED`."""
        message = f"{dotted(key)} = {shown(self.document.value(key))}: {reason}"
        self.findings.append(self.document.finding(key, message, reason=reason, hint=hint))
        return REFUSED

    def missing(self, key: Key, *, hint: str = "add it: it has no default") -> Any:
        """Notes that a required `key` is absent and returns `REFUSED`."""
        message = f"{dotted(key)} is missing"
        self.findings.append(self.document.finding(key, message, reason="is missing", hint=hint))
        return REFUSED

    def unknown_keys(self, key: Key, known: Iterable[str]) -> None:
        """Notes every entry of the table at `key` that is not in `known`."""
        names = tuple(known)
        for name in self.table(key):
            if name not in names:
                hint = did_you_mean(name, names, otherwise="keys here:")
                self.refuse((*key, name), "is no key of this table", hint=hint)

    def table(self, key: Key) -> Mapping[str, Any]:
        """The table at `key`; empty, with a finding, when something else stands there."""
        value = self.document.value(key)
        if isinstance(value, dict):
            return value
        if value is not None:
            self.refuse(key, "is not a table", hint=f"write [{dotted(key)}] with keys below it")
        return {}

    def value(self, hint: Any, key: Key) -> Any:
        """The value at `key` as `hint` wants it, or `REFUSED`."""
        choices = [arg for arg in _alternatives(hint) if _is_plain(arg)]
        if len(choices) > 1 and all(is_dataclass(choice) for choice in choices):
            wanted: Any = self.best_fit(choices, key)
        else:
            wanted = choices[0]
        if is_dataclass(wanted) and isinstance(wanted, type):
            return self.record(wanted, key)
        origin = get_origin(wanted)
        if origin is tuple:
            return self.sequence(get_args(wanted), key)
        if origin is Mapping:
            return self.mapping(get_args(wanted)[1], key)
        if isinstance(wanted, type) and issubclass(wanted, IntEnum):
            return self.choice({member.name.lower(): member for member in wanted}, key)
        return self.scalar(wanted, key)

    def best_fit(self, choices: list[Any], key: Key) -> Any:
        """The dataclass that knows most of the keys at `key`."""
        present = set(self.table(key))
        return max(choices, key=lambda choice: len(present & {f.name for f in fields(choice)}))

    def record(self, cls: type, key: Key) -> Any:
        """A dataclass from the table at `key`, or `REFUSED` after noting all that is wrong."""
        before = len(self.findings)
        known = fields(cls)
        self.unknown_keys(key, [f.name for f in known])
        values = self.entries({f.name: type_hints(cls)[f.name] for f in known}, key)
        for field in known:
            if field.name not in values and is_required(field):
                self.missing((*key, field.name))
        return REFUSED if len(self.findings) > before else cls(**values)

    def entries(self, hints: Mapping[str, Any], key: Key) -> dict[str, Any]:
        """The entries of the table at `key` that are named in `hints`, wrong ones included."""
        present = self.table(key)
        return {name: self.value(hints[name], (*key, name)) for name in hints if name in present}

    def sequence(self, args: tuple[Any, ...], key: Key) -> Any:
        """A tuple from a list, or from a table when its items are pairs."""
        value = self.document.value(key)
        if get_origin(args[0]) is tuple and isinstance(value, dict):
            item = get_args(args[0])[1]
            pairs = tuple((name, self.value(item, (*key, name))) for name in value)
            return REFUSED if any(v is REFUSED for _, v in pairs) else pairs
        if not isinstance(value, list):
            return self.refuse(key, "is not a list", hint="write [..., ...]")
        items = tuple(self.value(args[0], (*key, index)) for index in range(len(value)))
        return REFUSED if any(item is REFUSED for item in items) else items

    def mapping(self, hint: Any, key: Key) -> Any:
        """A dictionary whose values are all of one type."""
        entries = {name: self.value(hint, (*key, name)) for name in self.table(key)}
        return REFUSED if any(value is REFUSED for value in entries.values()) else entries

    def choice(self, names: Mapping[str, Any], key: Key) -> Any:
        """One of `names`, whatever its case and with "-" for "_"."""
        value = self.document.value(key)
        if isinstance(value, str):
            spelled = value.strip().lower()
            for candidate in (spelled, spelled.replace("-", "_"), spelled.replace("_", "-")):
                if candidate in names:
                    return names[candidate]
            return self.refuse(key, "is none of the choices", hint=did_you_mean(value, names))
        return self.refuse(key, "is not text in quotes", hint=f"one of {', '.join(names)}")

    def scalar(self, wanted: type, key: Key) -> Any:
        """A bool, int, float or str; an int passes for a float, nothing else for another."""
        value: Any = self.document.value(key)
        if wanted is float and type(value) is int and abs(value) <= LARGEST_INTEGER:
            return float(value)
        if type(value) is not wanted:
            hint = f"write {_example(wanted, value)}"
            return self.refuse(key, f"is not {_WORDS.get(wanted, wanted.__name__)}", hint=hint)
        if isinstance(value, float) and not math.isfinite(value):
            return self.refuse(key, "is not a finite number", hint="write a finite number")
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            return self.refuse(key, "is too large", hint=f"at most {LARGEST_INTEGER}")
        return value


def is_required(field: Field[Any]) -> bool:
    """True when a dataclass field has no default."""
    return field.default is MISSING and field.default_factory is MISSING


@cache
def type_hints(cls: type) -> dict[str, Any]:
    """The resolved annotations of a dataclass; `Mapping` is known even if only for checking."""
    return get_type_hints(cls, localns={"Mapping": Mapping})


def _example(wanted: type, value: Any) -> str:
    """How a value of the wanted kind is written: the whole number that was meant, where clear."""
    meant = _whole(value) if wanted is int else None
    return _EXAMPLES.get(wanted, "another value") if meant is None else f"it as {meant}"


def _whole(value: Any) -> int | None:
    """The whole number that 4096.0 or "50" stands for; None where it stands for none."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_INTEGER:
        return int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        return int(value)
    return None


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_plain(hint: Any) -> bool:
    """False for None and for array types, which no file holds."""
    return hint is not NoneType and getattr(get_origin(hint), "__module__", "") != "numpy"
