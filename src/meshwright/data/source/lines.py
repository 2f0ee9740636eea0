"""Lines of a range of bytes, many at once, with their numbers and within bounded memory.

A line belongs to the range in which its first byte lies. It ends with LF (or with the file); a CR
before it is left for the caller, for whom it is white space.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.data.source.rejects import EXCERPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.source.opening import Chunks


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines without their LF. `first` is the number of the first, from 1.

    `too_long`: it is a single line over the limit, of which only the beginning is given.
    `beyond`: they start after the range.
    """

    first: int
    lines: list[bytes]
    too_long: bool = False
    beyond: bool = False


def lines_of(chunks: Chunks, *, longest_bytes: int, beyond: bool = False) -> Iterator[Lines]:
    """The lines that start in the range, numbered from the first of them.

    With `beyond`, those that follow it up to the end of the file come after them, as far as they
    are asked for. No more than a chunk and a line of `longest_bytes` is held.
    """
    splitter = _Splitter(longest_bytes)
    for chunk in _from_line_start(chunks.inside) if chunks.before else chunks.inside:
        yield from splitter.feed(chunk)
    after = b""
    if splitter.is_open:
        for chunk in chunks.beyond:
            end = chunk.find(b"\n") + 1
            yield from splitter.feed(chunk[:end] if end else chunk)
            if end:
                after = chunk[end:]
                break
        yield from splitter.finish()
    if beyond:
        splitter.beyond = True
        for chunk in chain([after], chunks.beyond):
            yield from splitter.feed(chunk)
        yield from splitter.finish()


def _from_line_start(inside: Iterator[bytes]) -> Iterator[bytes]:
    """What follows the first LF."""
    for chunk in inside:
        at = chunk.find(b"\n") + 1
        if at:
            yield chunk[at:]
            yield from inside
            return


class _Splitter:
    """Cuts chunks at their line ends and keeps the beginning of the last line for the next."""

    def __init__(self, longest_bytes: int) -> None:
        self.beyond = False
        self._longest_bytes = longest_bytes
        self._number = 1
        self._held: list[bytes] = []  # the open line, or its beginning when it is too long
        self._held_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether a line has begun that has not ended."""
        return self._held_bytes > 0

    def feed(self, chunk: bytes) -> Iterator[Lines]:
        """The lines that end in `chunk`."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._hold(chunk)
            return
        start = 0
        if self._held_bytes:
            start = chunk.find(b"\n") + 1
            self._hold(chunk[: start - 1])
            yield from self.finish()
        if start <= end:
            yield from self._cut(chunk[start:end].split(b"\n"))
        self._hold(chunk[end + 1 :])

    def finish(self) -> Iterator[Lines]:
        """The open line, which ends here."""
        if self._held_bytes:
            line, too_long = b"".join(self._held), self._held_bytes > self._longest_bytes
            self._held, self._held_bytes = [], 0
            yield self._lines([line[:EXCERPT_BYTES] if too_long else line], too_long=too_long)

    def _hold(self, piece: bytes) -> None:
        """Adds to the open line; once it is too long no more than its beginning is kept."""
        room = max(self._longest_bytes, EXCERPT_BYTES)
        had_room = self._held_bytes <= room
        self._held_bytes += len(piece)
        if self._held_bytes <= room:
            self._held += [piece] if piece else []
        elif had_room:
            self._held = [b"".join([*self._held, piece[:EXCERPT_BYTES]])[:EXCERPT_BYTES]]

    def _cut(self, lines: list[bytes]) -> Iterator[Lines]:
        """Whole lines, those that are too long apart."""
        longest = self._longest_bytes
        start = 0
        for i in [i for i, line in enumerate(lines) if len(line) > longest]:
            if start < i:
                yield self._lines(lines[start:i])
            yield self._lines([lines[i][:EXCERPT_BYTES]], too_long=True)
            start = i + 1
        if start < len(lines):
            yield self._lines(lines[start:] if start else lines)

    def _lines(self, lines: list[bytes], *, too_long: bool = False) -> Lines:
        first = self._number
        self._number += len(lines)
        return Lines(first, lines, too_long, self.beyond)
