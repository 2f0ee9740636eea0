"""What each character is: classes and simple case folds, from a table of our own.

The table (characters.txt, Unicode 18) is part of the package so that the words of a build do not
change with the version of Unicode that a Python happens to have. Columns of characters hold one
byte each: an ASCII character as itself, in lower case; any other as the code of its class.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

KINDS = (  # classes of characters beyond ASCII; the byte of a class is _FIRST + its place
    "letter",
    "mark",  # combining; also joiners within words
    "number",
    "unspaced",  # letters of scripts that put no spaces between words
    "unspaced_mark",
    "space",
    "punct",
    "symbol",
    "other",  # controls, unassigned
    "terminal",  # ends a sentence (Sentence_Terminal)
    "ellipsis",
    "bullet",
    "quote",  # closes a quotation
)
_FIRST = 0xC0  # above the bytes that continue a character of UTF-8, which are deleted
BYTE = {kind: _FIRST + place for place, kind in enumerate(KINDS)}
CONTINUATION = bytes(range(0x80, 0xC0))
LOWER = bytes(range(256)).lower()  # ASCII to lower case, everything else as it is

_ASCII = {
    "letter": b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "number": b"0123456789",
    "space": b" \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f",
}


def marking(*kinds: str, also: bytes = b"") -> bytes:
    """A table of bytes: 1 for characters of these classes and for those in `also`, else 0.

    Of the classes, letter, number and space have members in ASCII.
    """
    table = bytearray(256)
    for kind in kinds:
        table[BYTE[kind]] = 1
    for byte in (*b"".join(_ASCII.get(kind, b"") for kind in kinds), *also):
        table[byte] = 1
    return bytes(table)


LETTERS = marking("letter", "unspaced")
WORD = marking("letter", "mark", "number", "unspaced", "unspaced_mark")
SPACE = marking("space")


def marked(characters: NDArray[np.uint8], table: bytes) -> NDArray[np.bool_]:
    """Which characters a table marks. Compares with its ranges, which is faster than looking up."""
    found = np.zeros(len(characters), dtype=np.bool_)
    for first, count in _ranges(table):
        found |= (characters - first) < count if count > 1 else characters == first
    return found


@cache
def _ranges(table: bytes) -> tuple[tuple[np.uint8, int], ...]:
    """The first byte of each run of marked ones, and how many they are; no upper case occurs."""
    marks = np.frombuffer(table, dtype=np.bool_).copy()
    marks[ord("A") : ord("Z") + 1] = False
    edges = np.flatnonzero(np.diff(marks.astype(np.int8), prepend=0, append=0)).tolist()
    return tuple((np.uint8(a), b - a) for a, b in zip(edges[::2], edges[1::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Characters:
    """For every code point: the byte of its class, and what its simple case fold adds to it."""

    kind: NDArray[np.uint8]
    fold: NDArray[np.int32]


@cache
def characters() -> Characters:
    """The table, read once a process."""
    lines = files(__package__).joinpath("characters.txt").read_text(encoding="ascii").splitlines()
    middle = next(i for i, line in enumerate(lines) if line.startswith("# case folds"))
    return Characters(kind=_kinds(lines[1:middle]), fold=_folds(lines[middle + 1 :]))


def _kinds(lines: Iterable[str]) -> NDArray[np.uint8]:
    rows = [line.split() for line in lines]
    starts = [0, *(int(code, 16) for code, _ in rows), 0x110000]
    values = [0, *(BYTE[kind] for _, kind in rows)]
    return np.repeat(np.array(values, dtype=np.uint8), np.diff(starts))


def _folds(lines: Iterable[str]) -> NDArray[np.int32]:
    fold = np.zeros(0x110000, dtype=np.int32)
    for line in lines:
        first, last, step, added = line.split()
        fold[int(first, 16) : int(last, 16) + 1 : int(step)] = int(added)
    return fold
