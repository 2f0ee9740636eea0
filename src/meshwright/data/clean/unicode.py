"""Repair of Unicode: line ends, control characters, mojibake, normal forms.

One pass over a batch finds the documents that hold anything to repair; the others are not touched.
Whatever is valid text stays: joiners of emoji, combining marks, direction marks, soft hyphens,
every kind of space. Repairing twice changes nothing more.

The order is: mojibake (its control characters are the trace by which it is recognized), line ends,
control characters, normal form, ends of lines.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.data.documents import Bytes, Documents, Mask, Offsets, Verdict
    from meshwright.data.settings import Clean

_TAB, _LINE_FEED, _RETURN, _SPACE, _DELETE = 0x09, 0x0A, 0x0D, 0x20, 0x7F
_ASCII_CONTROLS = bytes(
    code for code in (*range(0x20), _DELETE) if code not in (_TAB, _LINE_FEED, _RETURN)
)
# A terminal's escape sequence (ECMA-48, 5.4) goes whole, not its escape character alone.
_TERMINAL = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
# U+0080 to U+009F but U+0085, which ends a line, and U+FEFF, the byte order mark.
_OTHER_CONTROLS = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]|\xef\xbb\xbf")
_BEYOND = re.compile(r"[^\x00-\x7f]+")
_CONTEXT = 5
_FORMS = {"none": "", "nfc": "NFC", "nfkc": "NFKC"}
_ROUNDS = 4  # of mojibake: text that was decoded wrongly more often than that stays so


def repair(documents: Documents, settings: Clean) -> Documents:
    """The batch with its text repaired as `settings` say; itself when nothing is to repair."""
    suspects = np.flatnonzero(_suspects(documents, settings))
    changed: dict[int, bytes] = {}
    for number in suspects.tolist():
        before = documents.encoded(number)
        after = repaired(before, settings)
        if after != before:
            changed[number] = after
    return documents.with_texts(changed)


def repaired(text: bytes, settings: Clean) -> bytes:
    """One document (UTF-8) repaired."""
    if not settings.mojibake or text.isascii():
        return _cleaned(text, settings)
    for _ in range(_ROUNDS):
        before = text
        text = _cleaned(_mended(text), settings)
        if text == before:
            break
    return text


def judge(documents: Documents, settings: Clean) -> Verdict:
    """Drops documents of fewer than `min_characters`, white space at both ends not counted."""
    least = max(settings.min_characters, 1)
    lengths = documents.lengths
    empty = lengths < least
    starts = documents.bounds[:-1]
    visible = np.zeros(len(documents), dtype=np.bool_)
    held = lengths > 0
    first = documents.text[starts[held]]
    visible[held] = (first > _SPACE) & (first < _DELETE)
    doubtful = ~empty & ~(visible & (least == 1))
    for number in np.flatnonzero(doubtful).tolist():
        empty[number] = _has_fewer(documents, number, least)
    return {"empty": empty}


def _has_fewer(documents: Documents, number: int, least: int) -> bool:
    """Whether a document holds fewer characters; its beginning answers that for most."""
    start, stop = documents.bounds[number : number + 2].tolist()
    head = documents.text[start : min(stop, start + 4 * least + 64)].tobytes()
    if len(head.decode(errors="ignore").strip()) >= least:
        return False
    return len(documents.string(number).strip()) < least


def _suspects(documents: Documents, settings: Clean) -> Mask:
    """The documents that may hold something to repair; every one that does is among them."""
    text, bounds = documents.text, documents.bounds
    found = np.zeros(len(documents), dtype=np.bool_)
    if settings.strip_controls:
        _mark(found, bounds, _ascii_controls(text))
    if settings.newlines:
        _mark(found, bounds, _places(text == _RETURN))
    if settings.rstrip_lines:
        _mark(found, bounds, _blank_ends(text, bounds))
    if _other_repairs(settings) and len(text) and text.max() > _DELETE:
        _mark(found, bounds, _beyond_ascii(text, settings))
    return found


def _other_repairs(settings: Clean) -> bool:
    return (
        settings.strip_controls
        or settings.newlines
        or settings.mojibake
        or bool(_FORMS[settings.normalize])
    )


def _beyond_ascii(text: Bytes, settings: Clean) -> Offsets:
    """Places of bytes that only some repairs of text beyond ASCII look at."""
    if settings.mojibake or _FORMS[settings.normalize]:
        return _places(text > _DELETE)
    controls = (text[:-1] == 0xC2) & (text[1:] < 0xA0)
    marks = (text[:-2] == 0xEF) & (text[1:-1] == 0xBB) & (text[2:] == 0xBF)
    return np.concatenate([_places(controls), _places(marks)])


def _ascii_controls(text: Bytes) -> Offsets:
    """Places of control characters below U+0080 other than tab, line feed and return."""
    low = text < _SPACE
    spared = sum(int(np.count_nonzero(text == byte)) for byte in (_TAB, _LINE_FEED, _RETURN))
    deleted = text == _DELETE
    if int(np.count_nonzero(low)) == spared:
        return _places(deleted)
    low &= (text != _TAB) & (text != _LINE_FEED) & (text != _RETURN)
    return _places(low | deleted)


def _blank_ends(text: Bytes, bounds: Offsets) -> Offsets:
    """Places of spaces and tabs before a line's or a document's end."""
    blank = (text == _SPACE) | (text == _TAB)
    ends = np.zeros(len(text), dtype=np.bool_)
    ends[:-1] = (text[1:] == _LINE_FEED) | (text[1:] == _RETURN)
    stops = bounds[1:][bounds[1:] > bounds[:-1]]
    ends[stops - 1] = True
    return _places(blank & ends)


def _places(mask: Mask) -> Offsets:
    return np.flatnonzero(mask) if mask.any() else np.zeros(0, dtype=np.int64)


def _mark(found: Mask, bounds: Offsets, places: Offsets) -> None:
    """Marks the documents that hold these places."""
    if len(places):
        found[np.searchsorted(bounds, places, side="right") - 1] = True


def _cleaned(text: bytes, settings: Clean) -> bytes:
    """Every repair but that of mojibake."""
    if settings.newlines:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\xc2\x85", b"\n")
    if settings.strip_controls:
        text = _without_controls(text)
    form = _FORMS[settings.normalize]
    if form and not text.isascii():
        text = _normalized(text, form)
    return _without_blank_ends(text) if settings.rstrip_lines else text


def _without_controls(text: bytes) -> bytes:
    if b"\x1b[" in text:
        text = _TERMINAL.sub(b"", text)
    text = text.translate(None, _ASCII_CONTROLS)
    return text if text.isascii() else _OTHER_CONTROLS.sub(b"", text)


def _normalized(text: bytes, form: Any) -> bytes:
    string = text.decode()
    if unicodedata.is_normalized(form, string):
        return text
    return unicodedata.normalize(form, string).encode()


def _without_blank_ends(text: bytes) -> bytes:
    """Lines without spaces and tabs at their ends, in time linear in the length."""
    lines = text.split(b"\n")
    return b"\n".join(
        line[:-1].rstrip(b" \t") + b"\r" if line.endswith(b"\r") else line.rstrip(b" \t")
        for line in lines
    )


def _mended(text: bytes) -> bytes:
    """Text without mojibake, a line at a time: one bad line says nothing of the others."""
    mend, is_bad = _mender()
    lines = text.decode().split("\n")
    for place, line in enumerate(lines):
        if not line.isascii() and is_bad(_traces(line)):
            lines[place] = mend(line)
    return "\n".join(lines).encode()


def _traces(line: str) -> str:
    """What of a line decides whether it is bad: what lies beyond ASCII, and what touches it.

    Whatever ftfy (6.3, badness.py) takes for mojibake has a character beyond ASCII, and at most
    five characters in all. Looking at the rest of a line takes ten times longer.
    """
    parts = []
    stop = 0
    for run in _BEYOND.finditer(line):
        start = max(run.start() - _CONTEXT, stop)
        stop = min(run.end() + _CONTEXT, len(line))
        parts.append(line[start:stop])
    return "".join(parts)


@lru_cache(maxsize=1)
def _mender() -> tuple[Callable[[str], str], Callable[[str], bool]]:
    """ftfy's repair of encodings, and how it tells that there is something to repair."""
    ftfy = need("ftfy", "repair of mojibake (clean.mojibake)")
    badness = need("ftfy.badness", "repair of mojibake (clean.mojibake)")
    return ftfy.fix_encoding, badness.is_bad
