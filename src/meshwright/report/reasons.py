"""One reason for which a data build drops a document, as a page and as a record."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from meshwright.base.decode import type_hints
from meshwright.data.ranges import allowed
from meshwright.data.reasons import KEYS, REASONS
from meshwright.data.settings import Build, Source
from meshwright.data.source.rejects import REJECTS

_WHERE = {
    True: "dropped: `reason` in documents.parquet; `meshwright data stats FOLDER` counts them",
    False: "set aside: in rejected.jsonl with file, line and how it begins",
}


def reason_record(reason: str) -> dict[str, Any]:
    """What it says, and the keys of config.toml that decide it, with defaults and what they may be.

    `reason` is one of REASONS or REJECTS.
    """
    return {
        "reason": reason,
        "meaning": REASONS.get(reason) or REJECTS[reason],
        "dropped": reason in REASONS,
        "keys": [
            {"key": key, "default": _default(key), "allowed": allowed(key)}
            for key in KEYS.get(reason, ())
        ],
    }


def reason_page(reason: str) -> list[str]:
    """The same for people."""
    record = reason_record(reason)
    lines = [f"{reason}: {record['meaning']}", _WHERE[record["dropped"]]]
    for item in record["keys"]:
        told = f"default {item['default']}" if item["default"] is not None else "no default"
        bounds = f"; allowed: {item['allowed']}" if item["allowed"] else ""
        lines.append(f"  = {item['key']}: {told}{bounds}")
    return [*lines, "see docs/reference/data.md"]


def _default(key: str) -> Any:
    """The default of a key, None where it has none."""
    table, _, name = key.rpartition(".")
    default = {field.name: field.default for field in fields(_noun(table))}[name]
    plain = isinstance(default, bool | int | float | str | tuple)
    return (list(default) if isinstance(default, tuple) else default) if plain else None


def _noun(table: str) -> Any:
    """The dataclass of a table."""
    if table == "source":
        return Source
    hint = type_hints(Build)[table]
    return get_args(hint)[0] if get_args(hint) else hint
