"""Public IP addresses: those of private, documentation and other special ranges stay.

Four numbers with dots are as often a version as an address. They are taken for a version, and left
alone, when letters, digits, "_" or "-" touch them ("v1.2.3.4", "1.2.3.4-5"), when more numbers
follow or precede ("1.2.3.4.5"), after a product and a slash ("Chrome/120.0.6099.109"), after a
comparison of requirements (">=1.2.3.4"), after a word such as "version", "release" or "section",
when three of the four are below 16, which is true of one address in a thousand, and among the
coordinates of a drawing, which run into each other ("-.7 3.51.98.32", "l1.5c.2").
Version 6 addresses are found by their first group, 2000 to 3fff, which every public one has.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.clean.pii.found import ALNUM, Found, chosen, digits, table

if TYPE_CHECKING:
    from meshwright.data.documents import Bytes, Mask, Offsets

_DOT, _COLON = 0x2E, 0x3A
_HEX = table(b"0123456789abcdefABCDEF")
_WORD = ALNUM + b"_"

_FOUR = re.compile(
    rb"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.(?=[0-9])|(?![0-9]))){4}"
)
_VERSION_BEFORE = re.compile(
    rb"(?:\b(?:versions?|ver|release|rev|revision|build|firmware|update|upgraded?|patch|section|sect|"
    rb"chapter|clause|figure|table|appendix|oid)[\s:=#(\"'.]{0,3}|\xc2\xa7\s?|[=<>~!^]=\s?|[~^]|"
    rb"[A-Za-z0-9]/)\Z",
    re.IGNORECASE,
)
_CONTEXT_BYTES = 24
_DRAWN = b"0123456789.,-+ \tMmLlHhVvCcSsQqTtAaZz"  # what the path of an SVG is made of
_RUN_BYTES = 48  # of it that are looked at on each side
_COORDINATES = re.compile(
    rb"(?<![0-9])\.[0-9]"  # a fraction without its zero
    rb"|\.[0-9]++(?:-|[MmLlHhVvCcSsQqTtAaZz]-?)[0-9.]"  # the next number right behind one
)
_RANGE_BEFORE = re.compile(rb"[0-9]{1,3}(?:\.[0-9]{1,3}){3}-\Z")
_SIX = re.compile(rb"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{1,34}")

# What is not one host's address on the public internet (IANA's special-purpose registries,
# RFC 6890 and its updates), kept here so that the answer depends on no version of Python.
_SPECIAL_4 = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)
_SPECIAL_6 = tuple(
    ipaddress.ip_network(network)
    for network in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)
_DOCUMENTATION_4 = (b"192.0.2", b"198.51.100", b"203.0.113")  # RFC 5737
_HOSTS = 254
_SMALL, _VERSION_SMALL = 16, 3


def traces(text: Bytes) -> Offsets:
    """Places of the first dot of three close together, and of first groups of version 6."""
    return np.sort(np.concatenate([_dotted(text), _grouped(text)]))


def _dotted(text: Bytes) -> Offsets:
    """First of three dots with digits on both sides and at most three digits between."""
    digit = digits(text)
    dots = np.flatnonzero((text[1:-1] == _DOT) & digit[:-2] & digit[2:]) + 1
    gaps = np.diff(dots)
    close = gaps <= 4
    return dots[:-2][close[:-1] & close[1:]]


def _grouped(text: Bytes) -> Offsets:
    """Colons behind four hexadecimal digits of which the first is 2 or 3."""
    first = (text[:-4] | 1) == 0x33  # "2" or "3"
    colons = np.flatnonzero(first & (text[4:] == _COLON)) + 4
    grouped: Mask = np.logical_and.reduce([_HEX[text[colons - back]] for back in (1, 2, 3)])
    return colons[grouped]


def at(text: bytes, place: int) -> Found | None:
    """The public address around the dot or colon at `place`."""
    return _four(text, place) if text[place] == _DOT else _six(text, place - 4)


def _four(text: bytes, place: int) -> Found | None:
    head = text[max(place - 3, 0) : place]
    start = place - len(head) + len(head.rstrip(b"0123456789"))
    match = _FOUR.match(text, start, start + 16)
    if match is None or _touched(text, start, match.end()):
        return None
    if _VERSION_BEFORE.search(text[max(start - _CONTEXT_BYTES, 0) : start]):
        return None
    if _is_drawing(text, start, match.end()):
        return None
    address = ipaddress.IPv4Address(match[0].decode())
    if sum(part < _SMALL for part in address.packed) >= _VERSION_SMALL:
        return None
    if any(address in network for network in _SPECIAL_4):
        return None
    number = chosen(match[0], len(_DOCUMENTATION_4) * _HOSTS)
    network, host = divmod(number, _HOSTS)
    return Found("ip", start, match.end(), b"%s.%d" % (_DOCUMENTATION_4[network], host + 1))


def _touched(text: bytes, start: int, stop: int) -> bool:
    """Whether the numbers are part of something longer, as versions and OIDs are."""
    before, after = text[max(start - 1, 0) : start], text[stop : stop + 2]
    if before and before in _WORD + b".":
        return True
    if before == b"-" and not _RANGE_BEFORE.search(text[max(start - 16, 0) : start]):
        return True
    if after[:1] and after[:1] in _WORD:
        return True
    if after[:1] == b"-" and _FOUR.match(text, stop + 1, stop + 17):
        return False
    return after[:1] in (b".", b"-") and after[1:].isalnum()


def _is_drawing(text: bytes, start: int, stop: int) -> bool:
    """Whether what stands around the numbers is coordinates, written as short as can be."""
    before = text[max(start - _RUN_BYTES, 0) : start]
    after = text[stop : stop + _RUN_BYTES]
    first = len(before) - len(before.rstrip(_DRAWN))
    last = len(after) - len(after.lstrip(_DRAWN))
    around = before[len(before) - first :], after[:last]
    return any(_COORDINATES.search(run) for run in around)


def _six(text: bytes, start: int) -> Found | None:
    before = text[max(start - 1, 0) : start]
    match = _SIX.match(text, start) if start >= 0 else None
    if match is None or (before and before in _WORD + b":.-"):
        return None
    written = match[0]
    while written.endswith(b":") and not written.endswith(b"::"):
        written = written[:-1]
    after = text[start + len(written) : start + len(written) + 1]
    if after and after in _WORD:
        return None
    try:
        address = ipaddress.IPv6Address(written.decode())
    except ValueError:
        return None
    if any(address in network for network in _SPECIAL_6):
        return None
    number = chosen(address.packed, 0xFFFE)
    return Found("ip", start, start + len(written), b"2001:db8::%x" % (number + 1))  # RFC 3849
