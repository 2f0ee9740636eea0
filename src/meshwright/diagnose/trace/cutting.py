"""Cuts a long array of events into pieces that decode, whatever its layout.

The last place in the text that looks like the end of an event and the start of the next is taken;
the decoder proves it, for a cut inside of an event's arguments does not decode. Text that does not
decode is mended, and what cannot be mended is halved until the damaged events stand alone.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.diagnose.trace.decoding import Closed, Decoder, Malformed
from meshwright.diagnose.trace.events import Lenient
from meshwright.diagnose.trace.mending import BREAKS, mended, mended_thoroughly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.diagnose.trace.events import Events
    from meshwright.diagnose.trace.window import Window

EVENT_BYTES = 64 << 20  # the longest event that is read
_CUTS = 16  # cuts tried before the text is held to be damaged
_BRACES = 4096  # braces looked at in search of them
_GAP = 256  # white space between events
_BRACKET = ord("]")
_BOUNDARY = re.compile(
    rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)")',
)
_END = re.compile(rb'\}\s*\]\s*(?=,\s*"\w+"\s*:|\}\s*$)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Events decoded from the first `end` bytes of a text.

    `closed` says that the array ended there. `bad` events could not be decoded, `lost_bytes` of
    text among them; `mended` that the text was not JSON as it stood.
    """

    events: Events
    end: int
    closed: bool = False
    bad: int = 0
    lost_bytes: int = 0
    mended: bool = False


def next_piece(window: Window, decoder: Decoder, *, size: int) -> Piece | None:
    """The next events of the array in the window; None at the end of a text without an end.

    The window's text starts with the array's bracket, or with one in the place of what was read.
    """
    window.fill(size)
    while not window.ended and window.text[1:_GAP].isspace():
        window.text = bytearray(b"[") + window.text[1:].lstrip()
        window.fill(size)
    if window.ended and not window.text.strip(b"[ \t\r\n,"):
        return None
    try:
        return _cut_and_decoded(window, decoder)
    except Malformed:
        pass
    text = bytes(window.text)
    for mend in (mended, mended_thoroughly):
        window.text = bytearray(mend(text))
        try:
            return _as_mended(_cut_and_decoded(window, decoder))
        except Malformed as error:
            if error.truncated and _may_be_one_event(window):
                return next_piece(window, decoder, size=2 * len(window.text))
    return _salvaged(window, decoder, mended=window.text != text.translate(BREAKS))


def _may_be_one_event(window: Window) -> bool:
    """Whether the text may be the start of an event longer than the window."""
    if window.ended or len(window.text) >= EVENT_BYTES:
        return False
    return sum(1 for _ in islice(_BOUNDARY.finditer(window.text), 2)) < 2


def _cut_and_decoded(window: Window, decoder: Decoder) -> Piece:
    """The window's text up to its end, or up to the last cut that decodes."""
    text = window.text
    if window.ended:
        try:
            return _decoded(decoder, text, stop=len(text), end=len(text), closed=True)
        except Malformed as error:
            if not error.truncated:
                raise
    for stop, end in _cuts(text):
        followed, text[stop] = text[stop], _BRACKET  # in place: pieces are many, and long
        try:
            return _decoded(decoder, text, stop=stop + 1, end=end, closed=False)
        except Malformed as error:
            if not error.truncated:
                raise
        finally:
            text[stop] = followed
    raise Malformed(truncated=True)


def _decoded(decoder: Decoder, text: bytearray, *, stop: int, end: int, closed: bool) -> Piece:
    """The events of the text up to `stop`, or of as much of it as is an array."""
    view = memoryview(text)
    try:
        return Piece(events=decoder.decode(view[:stop]), end=end, closed=closed)
    except Closed as error:
        return Piece(events=decoder.decode(view[: error.at]), end=error.at, closed=True)


def _cuts(text: bytearray) -> Iterator[tuple[int, int]]:
    """Where events may end and their next begin, from the last on; the likely ones first."""
    found = []
    for cut in _boundaries(text):
        found.append(cut)
        if len(found) > 1 and _is_event(text[cut[1] : found[-2][0]]):
            yield found[-2]
        if len(found) > _CUTS:
            break
    yield from found[:_CUTS]


def _boundaries(text: bytearray) -> Iterator[tuple[int, int]]:
    """Ends of objects that another follows, and its start, from the last on."""
    start = len(text)
    for _ in range(_BRACES):
        start = text.rfind(b"{", 1, start)
        if start < 0:
            return
        gap = text[max(0, start - _GAP) : start].rstrip()
        if gap.endswith(b","):
            inner = gap[:-1].rstrip()
            if inner.endswith(b"}"):
                skipped = min(_GAP, start) - len(inner)
                yield start - skipped, start


def _is_event(text: bytearray) -> bool:
    try:
        event = Decoder().decode_lenient(b"[" + text + b"]")[0]
    except (Malformed, IndexError):
        return False
    return isinstance(event, Lenient) and event.ph is not None


def _as_mended(piece: Piece) -> Piece:
    return Piece(events=piece.events, end=piece.end, closed=piece.closed, mended=True)


def _salvaged(window: Window, decoder: Decoder, *, mended: bool) -> Piece:
    """What decodes of the window's text, event by event where it must be."""
    text = window.text
    stop, end = _array_end(window)
    starts = [1, *(m.end() for m in _BOUNDARY.finditer(text, 0, stop))]
    if not end and not window.ended and len(starts) > 1:
        stop = starts.pop()
    events: Events = []
    bad, lost = 0, 0
    spans = [(0, len(starts))]
    starts.append(stop)
    while spans:
        first, last = spans.pop()
        part = bytes(text[starts[first] : starts[last]]).rstrip(b" ,")
        try:
            events += decoder.decode(b"[" + part + b"]")
        except Malformed:
            if last - first == 1:
                bad, lost = bad + 1, lost + len(part)
            else:
                middle = (first + last) // 2
                spans += [(middle, last), (first, middle)]
    whole = end or stop
    return Piece(
        events=events, end=whole, closed=bool(end), bad=bad, lost_bytes=lost, mended=mended
    )


def _array_end(window: Window) -> tuple[int, int]:
    """Where the last event and the array seem to end: no event may follow. Else (length, 0)."""
    text = window.text
    found = _END.search(text, max(0, text.rfind(b'"ph"'))) if window.ended else None
    return (found.start() + 1, found.end()) if found else (len(text), 0)
