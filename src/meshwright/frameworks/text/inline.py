"""Mappings that an argument holds as JSON, opened: `--fsdp_config '{"version": 2}'`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshwright.frameworks.setting import Setting

_LONGEST = 20_000  # characters of an argument
_MOST_LEAVES = 500
_DEEPEST = 6


def opened(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """The settings, with those that hold a JSON object replaced by its leaves, at the same place.

    Leaves have dotted names; lists of plain values are leaves. What is no JSON stays as it is.
    """
    found: list[Setting] = []
    for setting in settings:
        leaves = list(_leaves(_mapping(setting.value), setting.name))[:_MOST_LEAVES]
        if not leaves:
            found.append(setting)
        for name, value in leaves:
            found.append(setting.replace(name=name, spelled=name, value=value))
    return tuple(found)


def _mapping(value: Any) -> Any:
    """The JSON object that a text is, None for any other."""
    if not isinstance(value, str) or not value.lstrip().startswith("{") or len(value) > _LONGEST:
        return None
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _leaves(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and depth < _DEEPEST:
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}", depth + 1)
    elif depth:
        yield name, value
