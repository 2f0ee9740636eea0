"""Text as a terminal shows it: tabs and wide characters measured, control characters spelled out.

Configurations are untrusted: an escape sequence or a bidirectional override in one must not reach
the terminal.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    import re

TAB = "    "
_HIDDEN = pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]")


def harmless(text: str) -> str:
    """`text` with characters that steer a terminal written as escapes; line ends and tabs stay."""
    return _HIDDEN.sub(_escaped, text) if _HIDDEN.search(text) else text


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def shown_character(character: str) -> str:
    """One character of a line as it is printed."""
    return TAB if character == "\t" else harmless(character)


def width(text: str) -> int:
    """Columns that a printed text takes: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
