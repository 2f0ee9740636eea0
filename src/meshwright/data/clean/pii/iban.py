"""International bank account numbers (ISO 13616): known country, right length, right check digits.

Written together or in groups with single spaces. The placeholders are the registry's own examples.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.clean.pii.found import ALNUM, Found, chosen, digits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.documents import Bytes, Offsets

_IBAN = re.compile(rb"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}")
# SWIFT's IBAN registry, release 99.
_LENGTHS: Mapping[bytes, int] = {
    country: length
    for length, countries in {
        15: b"NO",
        16: b"BE",
        18: b"DK FO FI GL NL SD FK",
        19: b"MK SI",
        20: b"AT BA EE KZ LT LU XK MN",
        21: b"CH HR LI LV",
        22: b"BG BH CR DE GB GE IE ME RS VA",
        23: b"AE GI IL IQ TL OM SO",
        24: b"AD CZ ES MD PK RO SA SE SK TN VG",
        25: b"LY PT ST",
        26: b"IS TR",
        27: b"BI DJ FR GR IT MC MR SM",
        28: b"AL AZ BY CY DO GT HN HU LB NI PL SV",
        29: b"BR EG PS QA UA",
        30: b"JO KW MU YE",
        31: b"MT SC",
        32: b"LC",
        33: b"RU",
    }.items()
    for country in countries.split()
}
_AS_NUMBERS = {ord(letter): str(int(letter, 36)) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_EXAMPLES = (
    b"AT611904300234573201",
    b"BE68539007547034",
    b"CH9300762011623852957",
    b"DE89370400440532013000",
    b"ES9121000418450200051332",
    b"FR1420041010050500013M02606",
    b"GB29NWBK60161331926819",
    b"IT60X0542811101000000123456",
    b"NL91ABNA0417164300",
    b"NO9386011117947",
    b"PL61109010140000071219812874",
    b"SE4550000000058398257466",
)


def traces(text: Bytes) -> Offsets:
    """Places of two capitals before two digits."""
    capital = (text >= 0x41) & (text <= 0x5A)
    digit = digits(text)
    return np.flatnonzero(capital[:-3] & capital[1:-2] & digit[2:-1] & digit[3:])


def at(text: bytes, start: int) -> Found | None:
    """The account number that begins at `start`, if its check digits are right."""
    before = text[max(start - 1, 0) : start]
    length = _LENGTHS.get(text[start : start + 2], 0)
    if not length or (before and before in ALNUM):
        return None
    match = _IBAN.match(text, start)
    if match is None:
        return None
    stop = _end_of(match[0], length)
    after = text[start + stop : start + stop + 1]
    compact = match[0][:stop].replace(b" ", b"")
    if len(compact) != length or (after and after in ALNUM):
        return None
    if compact in _EXAMPLES or not _is_valid(compact):
        return None
    return Found("iban", start, start + stop, _EXAMPLES[chosen(compact, len(_EXAMPLES))])


def _end_of(written: bytes, length: int) -> int:
    """Where the character of that number ends, spaces not counted."""
    places = [place + 1 for place, byte in enumerate(written) if byte != 0x20]
    return places[length - 1] if len(places) >= length else 0


def _is_valid(compact: bytes) -> bool:
    """Whether the check digits fit (ISO 7064, MOD 97-10)."""
    moved = (compact[4:] + compact[:4]).decode()
    return int(moved.translate(_AS_NUMBERS)) % 97 == 1
