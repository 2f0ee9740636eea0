"""Checked reading of a configuration: every wrong value is noted, and reading goes on.

A reader that meets a wrong value notes a `Problem` and carries on with a harmless stand-in, so that
one pass over a configuration reports everything that is wrong with it. Values that were not given
and were taken from elsewhere are noted as assumptions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from meshwright.base.names import nearest
from meshwright.base.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_LAYERS = 10_000
MAX_SIZE = 10_000_000  # widths, heads, experts, windows
MAX_VOCABULARY = 100_000_000
MAX_LENGTH = 1_000_000_000  # context lengths and windows, in tokens
_STAND_IN = 1
_LONGEST = 120  # characters of a wrong value that a message shows


class Fields:
    """One configuration being read; `problems` and `assumptions` grow as it is.

    `path` is the dotted path of the mapping inside its document ("" for the top, "text_config").
    `owner` names whose defaults apply, for messages.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        owner: str = "",
        path: str = "",
        name: str = "",
        source: str = "",
    ) -> None:
        self.config = config
        self.owner = owner
        self.path = path
        self.name = name
        self.source = source
        self.problems: list[Problem] = []
        self.assumptions: list[str] = []
        self._wrong: set[str] = set()

    def located(self, key: str) -> str:
        """The dotted path of a key from the top of the document."""
        return f"{self.path}.{key}" if self.path else key

    def reject(self, key: str, reason: str, *, hint: str = "", value: object = None) -> None:
        """Note a problem with a key; `value` defaults to what stands there."""
        self._wrong.add(key)
        found = self.config.get(key) if value is None else value
        stated = hint or "mend the value, or leave the key out where the model has none"
        self.problems.append(Problem(self.located(key), printable(found), reason, stated))

    def conflict(
        self, key: str, reason: str, *, beside: Sequence[str] = (), hint: str = ""
    ) -> None:
        """Note a contradiction of `key` with `beside`, unless one of them is wrong by itself."""
        if not self._wrong.intersection((key, *beside)):
            self.reject(key, reason, hint=hint)

    def is_wrong(self, key: str) -> bool:
        """True once a problem was noted for a key."""
        return key in self._wrong

    def assume(self, text: str) -> None:
        """Note something that was taken for granted."""
        if text not in self.assumptions:
            self.assumptions.append(text)

    def spelling(self, *keys: str) -> str:
        """The first of several spellings of one key that is present, else the first."""
        return next((key for key in keys if self.config.get(key) is not None), keys[0])

    def size(
        self, *keys: str, default: int | None = None, maximum: int = MAX_SIZE, minimum: int = 1
    ) -> int:
        """A whole number; `keys` are spellings.

        Absent or null takes `default`; where that is None the key is required.
        """
        key = self.spelling(*keys)
        value = self.config.get(key)
        if value is not None:
            return self._whole(key, value, minimum=minimum, maximum=maximum)
        if default is None:
            self._missing(keys)
            return _STAND_IN
        self.assume(f"{self.located(keys[0])} = {default} ({self._whose_default()})")
        return default

    def required(self, *keys: str, default: int, maximum: int = MAX_SIZE) -> int:
        """A whole number that a top-level configuration must give.

        Nested configurations are saved without the values that equal the class's defaults, so
        there `default` is taken, and noted as an assumption.
        """
        if self.path or self.config.get(self.spelling(*keys)) is not None:
            return self.size(*keys, default=default, maximum=maximum)
        self._missing(keys, default=default)
        return _STAND_IN

    def optional_size(
        self, *keys: str, default: int | None, maximum: int = MAX_SIZE, minimum: int = 1
    ) -> int | None:
        """A whole number or null; absent takes `default`, null is None."""
        key = next((key for key in keys if key in self.config), None)
        if key is None:
            return default
        value = self.config[key]
        return None if value is None else self._whole(key, value, minimum=minimum, maximum=maximum)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false; absent or null takes `default`."""
        value = self.config.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        reason = f"is {_kind(value)} where true or false is needed"
        self.reject(key, reason, hint="write true or false", value=value)
        return default

    def text(self, *keys: str, default: str) -> str:
        """A string; absent or null takes `default`."""
        key = self.spelling(*keys)
        value = self.config.get(key)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        hint = "put a word in quotes"
        self.reject(key, f"is {_kind(value)} where text is needed", hint=hint, value=value)
        return default

    def indices(self, key: str, *, below: int) -> tuple[int, ...] | None:
        """A list of layer numbers from 0 to `below` - 1; None when absent or null."""
        values = self._sequence(key)
        if values is None:
            return None
        wrong = [v for v in values if not _is_int(v) or not 0 <= v < below]
        if wrong:
            reason = (
                f"holds {printable(wrong[0])!r}, which is no layer number from 0 to {below - 1}"
            )
            self.reject(key, reason, value=values)
            return ()
        return tuple(values)

    def choices(self, key: str, *, length: int, allowed: Iterable[str]) -> tuple[str, ...] | None:
        """A list of `length` words out of `allowed`; None when absent, null or wrong."""
        values = self._sequence(key)
        if values is None:
            return None
        known = tuple(allowed)
        wrong = [v for v in values if v not in known]
        if wrong:
            near = nearest(wrong[0], known, limit=1) if isinstance(wrong[0], str) else ()
            reason = f"holds {printable(wrong[0])!r}; known are {', '.join(known)}"
            self.reject(key, reason, hint=f"did you mean {near[0]}?" if near else "", value=values)
            return None
        if len(values) != length:
            self.conflict(
                key,
                f"has {len(values)} entries for {length} layers",
                beside=("num_hidden_layers",),
                hint=f"give one entry a layer, {length} in all",
            )
            return None
        return tuple(values)

    def per_layer_size(self, *keys: str, default: int | None) -> int:
        """A whole number given once, or as a list of equal numbers a layer."""
        key = self.spelling(*keys)
        values = self.config.get(key)
        if not isinstance(values, (list, tuple)):
            return self.size(*keys, default=default)
        if not values:
            self.reject(key, "is an empty list", value=values)
            return _STAND_IN
        first = self._whole(key, values[0], minimum=0, maximum=MAX_SIZE)
        if any(v != values[0] for v in values) and not self.is_wrong(key):
            self.reject(key, "differs between layers, which cannot be read yet", value=values)
        return first

    def section(self, key: str) -> Mapping[str, Any]:
        """A nested mapping; empty when absent or null."""
        value = self.config.get(key)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.reject(key, f"is {_kind(value)} where a mapping is needed", value=value)
        return {}

    def _sequence(self, key: str) -> list[Any] | None:
        """A list as it stands, at most MAX_LAYERS long; None when absent, null or no list."""
        value = self.config.get(key)
        if value is None:
            return None
        if isinstance(value, (list, tuple)) and len(value) <= MAX_LAYERS:
            return list(value)
        kind = "too long" if isinstance(value, (list, tuple)) else _kind(value)
        self.reject(key, f"is {kind} where a list of one entry a layer is needed", value=value)
        return None

    def _whole(self, key: str, value: object, *, minimum: int, maximum: int) -> int:
        """`value` as an integer in range, else a stand-in in range and a problem."""
        problem = _integer_problem(value)
        if problem:
            hint = problem[1] or f"write a whole number from {minimum} to {maximum}"
            self.reject(key, problem[0], hint=hint, value=value)
            return max(minimum, _STAND_IN)
        whole = cast("int", value)
        if minimum <= whole <= maximum:
            return whole
        if whole < minimum:
            reason = "is negative" if whole < 0 else f"is {whole}"
            hint = f"it must be at least {minimum}"
        else:
            reason, hint = "is larger than any model has", f"it must be at most {maximum}"
        self.reject(key, reason, hint=hint, value=value)
        return max(minimum, _STAND_IN)

    def _missing(self, keys: Sequence[str], *, default: int | None = None) -> None:
        """Note that a required key is absent; name a present key that resembles it."""
        others = [k for k in self.config if isinstance(k, str) and k not in keys]
        near = nearest(keys[0], others, limit=1)
        hints = [f"did you mean it by {near[0]!r}?"] if near else []
        if default is not None:
            hints.append(f"{self._whose_default()} is {default}")
        self._wrong.add(keys[0])
        reason = "is null" if keys[0] in self.config else "is missing"
        text = "; ".join(hints)
        self.problems.append(Problem(self.located(keys[0]), None, reason, text))

    def _whose_default(self) -> str:
        """Whose default it is, in words."""
        return f"the default of {self.owner}" if self.owner else "default"


def printable(value: object) -> object:
    """A value fit for a message: itself, or a short text where it is too long to be read."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of thousands of digits
        return "a huge number"
    return value if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_int(value: object) -> bool:
    """True for an integer that is not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def _integer_problem(value: object) -> tuple[str, str] | None:
    """(reason, hint) why a value is no integer, None when it is one."""
    if _is_int(value):
        return None
    if isinstance(value, str):
        hint = f"write {int(value)} without quotes" if _is_digits(value) else ""
        return "is text where a whole number is needed", hint
    if isinstance(value, float) and math.isfinite(value) and abs(value) > 2**53:
        return "is larger than any model has" if value > 0 else "is negative", ""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return "has a decimal point where a whole number is needed", f"write {int(value):d}"
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number", ""
    return f"is {_kind(value)} where a whole number is needed", ""


def _is_digits(value: str) -> bool:
    """True for text of a few ASCII digits."""
    return value.isascii() and value.isdigit() and len(value) < 20


def _kind(value: object) -> str:
    """What a JSON value is, in words."""
    names = {bool: "true or false", str: "text", int: "a number", float: "a number"}
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return names.get(type(value), f"a {type(value).__name__}")
