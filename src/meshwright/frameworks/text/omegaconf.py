"""Values of OmegaConf's YAML that name other values: `${trainer.nnodes}`, `${.hidden_size}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from meshwright.base.locate import Document, Key

_WHOLE = pattern(r"\s*\$\{\s*(?P<path>\.*[\w./-]+)\s*\}\s*\Z")
_SELECT = pattern(
    r"\s*\$\{oc\.(?:select|env):\s*(?P<path>[\w.]+)\s*,\s*(?P<default>[^${}]*)\}\s*\Z"
)
_NUMBER = pattern(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_WORDS = {"true": True, "false": False, "null": None}
_DEEPEST = 8


def resolved(document: Document, key: Key, text: str, depth: int = 0) -> Any:
    """The value that `text` at a key path stands for.

    UNKNOWN where all of it is an expression that this file does not answer; a text with an
    expression in it, as a path, stays as it is written.
    """
    if depth > _DEEPEST:
        return UNKNOWN
    if "${{" in text:  # another program's template
        return text
    if match := _WHOLE.match(text):
        return _at(document, key, match.group("path"), depth)
    if match := _SELECT.match(text):
        found = _at(document, key, match.group("path"), depth)
        return _typed(match.group("default").strip()) if found is UNKNOWN else found
    stripped = text.strip()
    alone = stripped.startswith("${") and stripped.find("}") == len(stripped) - 1
    nested = stripped.startswith("${") and stripped.endswith("}") and stripped.count("${") > 1
    return UNKNOWN if alone or (nested and "/" not in text) else text


def _at(document: Document, key: Key, path: str, depth: int) -> Any:
    """The value at a path: from the top, or with leading dots from the table around the key."""
    dots = len(path) - len(path.lstrip("."))
    target: Key = key[: max(len(key) - dots, 0)] if dots else ()
    for part in path.lstrip(".").split("."):
        parent = document.value(target)
        step: str | int = int(part) if isinstance(parent, list) and part.isdigit() else part
        if not isinstance(parent, dict | list) or (isinstance(parent, dict) and step not in parent):
            return UNKNOWN
        target = (*target, step)
    value = document.value(target)
    if isinstance(value, str) and "${" in value:
        return resolved(document, target, value, depth + 1)
    return UNKNOWN if isinstance(value, dict) else value


def _typed(text: str) -> Any:
    """A default as YAML would type it."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.match(text) and len(text) < 30:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text.strip("'\"")
