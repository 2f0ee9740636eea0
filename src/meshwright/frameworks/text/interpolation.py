"""Values in a YAML file that name others: `${model.seq_length}` (OmegaConf's interpolations).

A name counts from the top; with leading dots it counts from the value's own group, each dot but the
first going up one level. `oc.select` and `oc.env` have a default; what calls another function is
not known without running it. A reference inside other text is left as it stands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import UNKNOWN

if TYPE_CHECKING:
    from meshwright.base.locate import Key
    from meshwright.base.locate.document import Document

_LONGEST_CHAIN = 8
_REFERENCE = pattern(r"\$\{\s*(\.*)([\w.\-]+)\s*\}")
_SELECT = pattern(r"\$\{\s*oc\.select\s*:\s*([\w.\-]+)\s*(?:,([^{}]*))?\}")
_ENVIRONMENT = pattern(r"\$\{\s*oc\.env\s*:\s*\w+\s*,([^{}]*)\}")
_WHOLE = pattern(r"\$\{.*\}", re.DOTALL)
_NOTHING: Any = object()


def resolved(document: Document, key: Key, value: str) -> Any:
    """What the value at a key path means: itself, the value that it names, or UNKNOWN."""
    found: Any = value
    for _ in range(_LONGEST_CHAIN):
        if not isinstance(found, str) or not _WHOLE.fullmatch(found.strip()):
            return UNKNOWN if isinstance(found, dict) else found
        key, found = _followed(document, key, found.strip())
        if found is _NOTHING:
            return UNKNOWN
    return UNKNOWN


def _followed(document: Document, key: Key, text: str) -> tuple[Key, Any]:
    """The place that a reference names, and what stands there."""
    if match := _REFERENCE.fullmatch(text):
        dots, path = len(match.group(1)), tuple(match.group(2).split("."))
        target = (*key[:-dots], *path) if dots else path
        return target, _at(document, target)
    if match := _SELECT.fullmatch(text):
        target = tuple(match.group(1).split("."))
        found = _at(document, target)
        return target, _typed(match.group(2)) if found is _NOTHING else found
    if match := _ENVIRONMENT.fullmatch(text):
        return key, _typed(match.group(1))
    return key, _NOTHING


def _at(document: Document, key: Key) -> Any:
    """What stands at a key path; list items go by their number."""
    node: Any = document.data
    for part in key:
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and str(part).isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            return _NOTHING
    return node


def _typed(text: str | None) -> Any:
    """A default as YAML reads a plain word."""
    if text is None:
        return _NOTHING
    word = text.strip().strip("\"'")
    known = {"true": True, "false": False, "null": None, "": None}
    if word.lower() in known:
        return known[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
