"""Phone numbers that are written so that they can hardly be anything else.

Two notations are known: international ("+49 30 1234567": "+", a country code, 8 to 15 digits in
all, ITU-T E.164; at least 10 where nothing separates them) and North American ("(415) 555-2671",
"415-555-2671": area and exchange begin with 2 to 9). Numbers in other national notations look like
any other digits and stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.clean.pii.found import ALNUM, Found, chosen, digits, table

if TYPE_CHECKING:
    from meshwright.data.documents import Bytes, Mask, Offsets

_PLUS = 0x2B
_WORD = ALNUM + b"_"
_BREAK = table(b"-. ")
_COUNTRY = table(b"123456789")
_NANP = re.compile(rb"\+1(?:[-. /()]{0,2}[0-9]){10}(?![0-9])")
_OTHER = re.compile(rb"\+[2-9](?:[-. /()]{0,2}[0-9]){7,14}(?![0-9])")
_AMERICAN = re.compile(
    rb"(?<![A-Za-z0-9_.+$-])(?:1[-. ])?"
    rb"(?:\([2-9][0-9]{2}\)[ -]?[2-9][0-9]{2}[-. ]|[2-9][0-9]{2}(?P<b>[-.])[2-9][0-9]{2}(?P=b))"
    rb"[0-9]{4}(?![0-9])"
)
_NATIONAL = re.compile(rb"1?(?P<area>[2-9][0-9]{2})(?P<exchange>[2-9][0-9]{2})(?P<line>[0-9]{4})")
_NO_DIGITS = bytes(code for code in range(256) if code not in b"0123456789")
_LEAST_UNBROKEN = 10
_REACH = 12  # bytes before the last break of a North American number: "1-(415) 555"
_PLACEHOLDERS = 100  # 555-0100 to 555-0199 are kept free for fiction


def traces(text: Bytes) -> Offsets:
    """Places of "+" before a country code, and of the break before four last digits."""
    return np.sort(np.concatenate([_pluses(text), _breaks(text)]))


def _pluses(text: Bytes) -> Offsets:
    places = np.flatnonzero(text[:-1] == _PLUS)
    return places[_COUNTRY[text[places + 1]]]


def _breaks(text: Bytes) -> Offsets:
    """Breaks with three digits before and four behind."""
    digit = digits(text)
    places = np.flatnonzero(digit[2:-5] & ~digit[3:-4] & digit[4:-3]) + 3
    places = places[_BREAK[text[places]]]
    around: Mask = np.logical_and.reduce([digit[places + step] for step in (-3, -2, 2, 3, 4)])
    return places[around]


def at(text: bytes, place: int) -> Found | None:
    """The number that begins with the "+" at `place`, or whose last break is there."""
    return _international(text, place) if text[place] == _PLUS else _american(text, place)


def _international(text: bytes, start: int) -> Found | None:
    before = text[max(start - 1, 0) : start]
    if before and before in _WORD + b"+":
        return None
    match = (_NANP if text[start + 1 : start + 2] == b"1" else _OTHER).match(text, start)
    if match is None or _continues(text, match.end()):
        return None
    number = match[0].translate(None, _NO_DIGITS)
    breaks = match[0].translate(None, b"+0123456789")
    if breaks == b"." or (not breaks and len(number) < _LEAST_UNBROKEN):
        return None  # a decimal fraction or a large number with its sign
    if number.startswith(b"1") and not _is_taken(number):
        return None
    return _placed(start, match.end(), number, prefix=b"+1 ")


def _american(text: bytes, place: int) -> Found | None:
    match = _AMERICAN.search(text, max(place - _REACH, 0), place + 6)
    if match is None or match.end() != place + 5 or _continues(text, match.end()):
        return None
    number = match[0].translate(None, _NO_DIGITS)
    if not _is_taken(number):
        return None
    return _placed(match.start(), match.end(), number, prefix=b"")


def _continues(text: bytes, stop: int) -> bool:
    """Whether what follows makes the digits part of something longer."""
    after = text[stop : stop + 2]
    if after[:1] and after[:1] in _WORD:
        return True
    return after[:1] in (b"-", b".", b"/") and after[1:].isdigit()


def _is_taken(number: bytes) -> bool:
    """Whether somebody may have this North American number."""
    match = _NATIONAL.fullmatch(number)
    return match is not None and not (
        match["exchange"] == b"555" and match["line"].startswith(b"01")
    )


def _placed(start: int, stop: int, number: bytes, *, prefix: bytes) -> Found:
    line = b"%s202-555-01%02d" % (prefix, chosen(number, _PLACEHOLDERS))
    return Found("phone", start, stop, line)
