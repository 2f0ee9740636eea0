"""Damaged JSON text made readable: what several exporters wrote, and what cut or sick files hold.

Characters that JSON forbids in strings become spaces, bytes that are no UTF-8 and lone surrogates
become the replacement character, NaN and infinities become null; a comma too many or too few
between events is mended too. Nothing else is guessed.
"""

from __future__ import annotations

import re

_CONTROLS = bytes.maketrans(bytes(range(32)), b" " * 32)
BREAKS = bytes.maketrans(b"\t\n\r", b"   ")  # what may stand between values
_NUMBERS = rb"[-+]?(?:NaN|nan|NAN|Infinity|infinity|inf|Inf|INF)"
_VALUE = re.compile(rb'("\s*:\s*)' + _NUMBERS + rb"(?=\s*[,}\]])")
_OUTSIDE = re.compile(
    rb'"(?:[^"\\]|\\.)*+"|(?P<null>' + _NUMBERS + rb")\b|(?P<end>\}(?=\s*\{))|,(?=\s*[\]}])"
)
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
    """The text with all mended that stands outside of strings: numbers that are none, commas."""
    return _OUTSIDE.sub(_outside, mended(text))


def _outside(found: re.Match[bytes]) -> bytes:
    if found["null"]:
        return b"null"
    if found["end"]:
        return b"},"
    return found[0] if found[0] != b"," else b""
