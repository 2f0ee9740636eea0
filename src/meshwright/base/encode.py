"""From typed values to plain ones and to TOML text; the inverse of `decode`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import IntEnum
from typing import Any

from meshwright.base.pattern import pattern

_BARE_KEY = pattern(r"[A-Za-z0-9_-]+\Z")


def plain(value: Any) -> Any:
    """Dataclasses as tables without None and without defaults, tuples as lists, enums as names."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = ((f.name, getattr(value, f.name)) for f in fields(value) if _differs(value, f))
        return {name: plain(entry) for name, entry in kept}
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return _pairs(value) if _are_pairs(value) else [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def _differs(value: Any, field: Field[Any]) -> bool:
    """Whether a field must be written: it has a value, and not its default one."""
    entry = getattr(value, field.name)
    if field.default is not MISSING:
        return not _same(entry, field.default)
    if field.default_factory is not MISSING:
        return not _same(entry, field.default_factory())
    return entry is not None


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _are_pairs(value: Any) -> bool:
    return bool(value) and all(
        isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in value
    )


def _pairs(value: Any) -> dict[str, Any]:
    return {name: plain(entry) for name, entry in value}


def to_toml(tables: Mapping[str, Any]) -> str:
    """TOML text of nested tables: plain entries first, then sub-tables under their headers."""
    return "\n".join(_table((), tables)).strip("\n") + "\n"


def _table(path: tuple[str, ...], entries: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    inner: list[str] = []
    for name, value in entries.items():
        below = (*path, name)
        if isinstance(value, Mapping):
            inner += ["", f"[{_dotted(below)}]", *_table(below, value)]
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for item in value:
                inner += ["", f"[[{_dotted(below)}]]", *_table(below, item)]
        else:
            lines.append(f"{_key(name)} = {_inline(value)}")
    return lines + inner


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(part) for part in path)


def _key(name: str) -> str:
    return name if _BARE_KEY.match(name) else _text(name)


def _inline(value: Any) -> str:
    """One value on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return repr(value)


def _text(value: str) -> str:
    """A basic string; TOML's escapes are JSON's, and DEL must be escaped too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
