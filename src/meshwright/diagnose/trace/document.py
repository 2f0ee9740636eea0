"""The outline of a trace file: metadata, the array of events, more metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.diagnose.trace.columns import Left
from meshwright.diagnose.trace.mending import mended_thoroughly
from meshwright.diagnose.trace.meta import base_in, said
from meshwright.diagnose.trace.source import PIECE_BYTES, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.diagnose.trace.window import Window

METADATA_BYTES = 64 << 20  # before or after the events
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*')
_SPACE = b" \t\r\n"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # what a file begins with
_ERRORS = (msgspec.DecodeError, RecursionError)


def opened(path: Path | str, window: Window) -> dict[str, Any]:
    """Moves the window to the array of events; what the metadata before it says.

    Raises `InvalidInput` where the text is not a trace.
    """
    window.fill(PIECE_BYTES)
    window.drop(len(window.text) - len(window.text.lstrip(_SPACE)))
    if window.text.startswith(b"["):
        return {}
    if not window.text.startswith(b"{"):
        refuse(path, _why_no_json(bytes(window.text[: len(LFS_POINTER)])))
    while True:
        for found in _EVENTS.finditer(window.text):
            metadata = _head(bytes(window.text[: found.start()]))
            if metadata is not None:
                _enter(path, window, found.end())
                return metadata
        if window.ended or len(window.text) > METADATA_BYTES:
            refuse(path, _why_none(window))
        window.fill(2 * len(window.text))


def _enter(path: Path | str, window: Window, start: int) -> None:
    """Moves the window to the array that starts here."""
    window.drop(start)
    window.fill(1)
    if not window.text.startswith(b"["):
        refuse(path, "its traceEvents are no list" if window.text else "it ends before its events")


def _head(text: bytes) -> dict[str, Any] | None:
    """The metadata in an object's text up to a key; None if the key is not one of the object."""
    for mend in (bytes, mended_thoroughly):
        try:
            return said(mend(text).rstrip(_SPACE).rstrip(b",") + b"}")
        except _ERRORS:
            continue
    return None


def _why_no_json(begin: bytes) -> str:
    if begin == LFS_POINTER:
        return "it is a pointer of Git LFS to the file, which `git lfs pull` brings"
    return "it is not JSON" if begin else "the file is empty"


def _why_none(window: Window) -> str:
    """Why there are no events in an object."""
    if not window.ended:
        return f"no traceEvents in its first {METADATA_BYTES >> 20} MiB"
    try:
        said(mended_thoroughly(bytes(window.text)))
    except _ERRORS:
        return "it is not JSON, or cut off before its events"
    return "it has no traceEvents"


def closed(window: Window, *, told: list[Left]) -> dict[str, Any]:
    """What the metadata behind the array says, from a window that starts behind its bracket."""
    window.fill(METADATA_BYTES)
    text = bytes(window.text.lstrip(_SPACE).removeprefix(b","))
    if not text.strip(_SPACE):
        return {}
    known, rest = _tail(b"{" + text)
    if rest:
        _tell(told, "text after the trace", len(rest), "a file holds one trace")
    if known is None:
        _tell(told, "metadata after the events", len(text), "it is damaged or cut off")
        return base_in(text)
    if known.pop("traceEvents"):
        _tell(told, "a second list of events", len(text), "a trace has one")
    return known


def _tail(text: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """An object at the start of a text, and what follows it."""
    for mend in (bytes, mended_thoroughly):
        whole = mend(text)
        try:
            return said(whole), b""
        except _ERRORS as error:
            place = re.search(r"trailing characters \(byte (\d+)\)", str(error))
            if place:
                end = int(place[1]) - 1
                return said(whole[:end]), whole[end:]
    return None, b""


def _tell(told: list[Left], what: str, size: int, reason: str) -> None:
    told.append(Left(what=f"{what} ({size:,} bytes)", count=1, time_us=0.0, reason=reason))
