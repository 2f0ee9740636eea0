"""Damaged JSON text made readable: what several exporters wrote, and what cut or sick files hold.

Characters that JSON forbids in strings become spaces, bytes that are no UTF-8 and lone surrogates
become the replacement character, NaN and infinities become null. Nothing else is guessed.
"""

from __future__ import annotations

import re

_CONTROLS = bytes.maketrans(bytes(range(32)), b" " * 32)
_NUMBERS = rb"[-+]?(?:NaN|nan|NAN|Infinity|infinity|inf|Inf|INF)"
_VALUE = re.compile(rb'("\s*:\s*)' + _NUMBERS + rb"(?=\s*[,}\]])")
_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"|' + _NUMBERS + rb"\b")
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def mended(text: bytes) -> bytes:
    """The text with all that is quickly mended: numbers that are none only as values of keys."""
    text = text.translate(_CONTROLS)
    if not text.isascii():
        text = text.decode("utf-8", "replace").encode()
    text = _VALUE.sub(rb"\1null", text)
    return _SURROGATE.sub(lambda m: m[0] if len(m[0]) > 6 else rb"\ufffd", text)


def mended_thoroughly(text: bytes) -> bytes:
    """The text with numbers that are none replaced wherever they stand outside of strings."""
    return _STRING_OR_NUMBER.sub(lambda m: _value(m[0]), mended(text))


def _value(found: bytes) -> bytes:
    return found if found.startswith(b'"') else b"null"
