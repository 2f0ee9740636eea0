"""`--pin tp=8`, `--pin tp=2..8`, `--ban schedule=gpipe,zb-v`: text to values of plan fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

_RANGE = pattern(r"(\d{1,6})\.\.(\d{1,6})\Z")
_LISTS = ("recompute_modules", "layout")  # fields whose one value is a list


def parse_pins(texts: Iterable[str]) -> dict[str, Any]:
    """Values by field from "name=value", "name=a,b" and "name=low..high"; repeats add up."""
    pins: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or not values.strip():
            raise MeshwrightError(
                f"cannot read {text!r}", hint="type FIELD=VALUE, as tp=8, tp=2,4 or tp=2..8"
            )
        pins.setdefault(name, []).extend(_values(name, values))
    return pins


def _values(name: str, text: str) -> list[Any]:
    parts = [part.strip() for part in text.split(",")]
    if name in _LISTS:
        return [[_number(part) for part in parts]]
    values: list[Any] = []
    for part in parts:
        match = _RANGE.match(part)
        if match:
            values += _between(name, int(match.group(1)), int(match.group(2)))
        else:
            values.append(_number(part))
    return values


def _between(name: str, low: int, high: int) -> range:
    """All whole numbers from `low` to `high`; MeshwrightError when there are none."""
    if low > high:
        raise MeshwrightError(
            f"{name}={low}..{high} is empty", hint=f"the smaller comes first: {name}={high}..{low}"
        )
    return range(low, high + 1)


def _number(text: str) -> Any:
    """The bool, int or float that a text spells, or the text itself."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
