"""A stretch of a long text that moves along it: what was read and not yet understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Window:
    """`text` is what lies in the window, `ended` whether the text ends with it.

    `read_bytes` counts what was read of the text so far. The window's text may be written to.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.text = bytearray()
        self.ended = False
        self.read_bytes = 0
        self._pieces = pieces

    def fill(self, count: int) -> None:
        """Reads until the window holds `count` bytes or the text ends."""
        held: list[bytes | bytearray] = [self.text]
        size = len(self.text)
        while size < count and not self.ended:
            piece = next(self._pieces, None)
            if piece is None:
                self.ended = True
            else:
                held.append(piece)
                size += len(piece)
                self.read_bytes += len(piece)
        if len(held) > 1:
            self.text = bytearray().join(held)

    def drop(self, count: int, *, instead: bytes = b"") -> None:
        """Leaves the first `count` bytes behind, with a few others in their place."""
        self.text = bytearray(instead) + self.text[count:]
