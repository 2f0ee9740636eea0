"""The text of an array of events as events, by the quickest decoder that takes it."""

from __future__ import annotations

import re

import msgspec

from meshwright.diagnose.trace.events import Events, leniently, quick_decoder

_BYTE = re.compile(r"\(byte (\d+)\)")
_PATIENCE = 3  # refusals in a row after which the quick decoder is not asked again


class Malformed(Exception):  # noqa: N818 - always caught where the text was cut
    """The text is no JSON array. `truncated` says that it ends too early."""

    def __init__(self, *, truncated: bool = False) -> None:
        super().__init__()
        self.truncated = truncated


class Closed(Malformed):
    """The array ends before the text does: after `at` bytes."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at


class Decoder:
    """Decodes arrays of one file; knows what the file has asked for so far.

    `exact` says that its times have more digits than a float, or are text; `lenient` that some of
    what was decoded since it was last unset needs cleaning.
    """

    def __init__(self) -> None:
        self.exact = False
        self.lenient = False
        self._strict = True
        self._refusals = 0

    def decode(self, text: bytes | memoryview) -> Events:
        """The events of `[...]`; raises `Malformed` and its kin."""
        try:
            if events := self._quickly(text):
                return events
            events = leniently().decode(text)
            self.lenient = True
            return events
        except RecursionError:
            raise Malformed from None
        except msgspec.DecodeError as error:
            raise _kind(str(error)) from None

    def _quickly(self, text: bytes | memoryview) -> Events:
        """The events by a quick decoder, strict or not; none if both refuse."""
        if self._refusals >= _PATIENCE:
            return []
        ways = ((self.exact, True), (True, False)) if self._strict else ((True, False),)
        for exact, strict in ways:
            try:
                events = quick_decoder(exact=exact, strict=strict).decode(text)
            except msgspec.ValidationError:
                continue
            self._refusals, self.exact, self._strict = 0, exact, strict
            return events
        self._refusals += 1
        return []

    def decode_lenient(self, text: bytes) -> Events:
        """The same by the lenient decoder."""
        self._refusals, kept = _PATIENCE, self._refusals
        try:
            return self.decode(text)
        finally:
            self._refusals = kept


def _kind(message: str) -> Malformed:
    """What the decoder's message means. It counts bytes past the character it tells of."""
    place = _BYTE.search(message)
    if "trailing characters" in message and place:
        return Closed(int(place[1]) - 1)
    return Malformed(truncated="truncated" in message)
