"""E-mail addresses, as people write them: dot-atoms of ASCII (RFC 5321, 4.1.2) at a domain name.

Left alone: addresses at names reserved by RFC 2606, domains whose end is no top-level domain
("root@host", "a@self.weight" in code), quoted local parts, remotes of git ("git@host.org:a/b",
"ann@host.org:a/b.git"). Of a local part that holds letters
beyond ASCII only the ASCII end is masked: scripts without spaces put text right before an address.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.shipped import shipped
from meshwright.data.clean.pii.found import ALNUM, Found, chosen, table

if TYPE_CHECKING:
    from meshwright.data.documents import Bytes, Offsets

_AT = 0x40
_LOCAL = ALNUM + b"!#$%&'*+-/=?^_`{|}~."
_ENDS_LOCAL = table(ALNUM + b"_-+~")
_STARTS_DOMAIN = table(ALNUM)
_LONGEST_LOCAL, _LONGEST_DOMAIN = 64, 255  # RFC 5321, 4.5.3.1
_DOMAIN = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})(?:\.[A-Za-z0-9][A-Za-z0-9-]{0,62}){1,16}")
_RESERVED = re.compile(
    rb"(?:.*\.)?(?:example\.(?:com|net|org)|example|test|invalid|localhost)", re.IGNORECASE
)
_REMOTE = re.compile(rb":[A-Za-z0-9~_./-]++(?<=\.git)")
_LONGEST_PATH = 255
_LEADING = b"!#$%&'*+-/=?^_`{|}~."  # what precedes an address more often than it begins one
_PLACEHOLDERS = 1000


def traces(text: Bytes) -> Offsets:
    """Places of every "@" between characters that an address may have there."""
    places = np.flatnonzero(text[1:-1] == _AT) + 1
    return places[_ENDS_LOCAL[text[places - 1]] & _STARTS_DOMAIN[text[places + 1]]]


def at(text: bytes, place: int) -> Found | None:
    """The address around the "@" at `place`, if there is one that is not reserved."""
    start = _local_start(text, place)
    stop = _domain_stop(text, place + 1)
    if start == place or stop < 0 or _RESERVED.fullmatch(text, place + 1, stop):
        return None
    if text[start:place] == b"git" or _REMOTE.match(text, stop, stop + _LONGEST_PATH):
        return None
    number = chosen(text[start:stop], _PLACEHOLDERS)
    return Found("email", start, stop, b"user%03d@example.com" % number)


def _local_start(text: bytes, place: int) -> int:
    """Where the part before the "@" begins; `place` when there is none."""
    window = text[max(place - _LONGEST_LOCAL - 1, 0) : place]
    local = window[len(window.rstrip(_LOCAL)) :]
    if len(local) > _LONGEST_LOCAL or b".." in local:
        local = local[-_LONGEST_LOCAL:].rpartition(b"..")[2]
    return place - len(local.lstrip(_LEADING))


def _domain_stop(text: bytes, start: int) -> int:
    """Where the domain ends, which is at a top-level domain; -1 when there is none."""
    match = _DOMAIN.match(text, start, start + _LONGEST_DOMAIN)
    if match is None:
        return -1
    domain = match[0].rstrip(b"-")
    while b"." in domain:
        head, _, top = domain.rpartition(b".")
        if top.lower() in _top_level_domains():
            return start + len(domain)
        domain = head.rstrip(b"-")
    return -1


@lru_cache(maxsize=1)
def _top_level_domains() -> frozenset[bytes]:
    listed = shipped("meshwright.data.clean.pii") / "top_level_domains.txt"
    lines = listed.read_bytes().splitlines()
    return frozenset(line for line in lines if not line.startswith(b"#"))
