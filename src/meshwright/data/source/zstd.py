"""Zstandard, streamed: any number of frames, at most a MiB of output at a time.

The library's own reader says nothing of a file that ends within a frame, and one call of its
incremental interface may return gigabytes for a few bytes. So the frames' blocks, each of at most
128 KiB of content, are found here (RFC 8878, section 3.1.1) and handed over a few at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.data.needs import need
from meshwright.data.source.damage import damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.base.errors import InvalidInput

MAGIC = b"\x28\xb5\x2f\xfd"
LARGEST_WINDOW_BYTES = 1 << 27  # as zstd itself takes without --long
_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5f
_LONGEST_HEADER = 18
_BLOCK_BYTES = 128 << 10
_BLOCKS = 2  # handed over at once
_RLE, _RESERVED = 1, 3


def is_skippable(head: bytes) -> bool:
    """Whether a skippable frame begins here, as parallel compressors write before the first."""
    return len(head) >= 4 and head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50


def unzstandard(stored: Iterator[bytes], path: str) -> Iterator[bytes]:
    """The frames' contents end to end; skippable frames are skipped.

    Raises InvalidInput for a file that is cut short, damaged, followed by something else, that
    needs a dictionary, or a window above LARGEST_WINDOW_BYTES.
    """
    zstandard = need("zstandard", "reading .zst files")
    feed = _Feed(stored, path)
    while head := feed.peek(_LONGEST_HEADER):
        if is_skippable(head):
            feed.skip(8 + int.from_bytes(head[4:8], "little"))
        elif head[:4] == MAGIC:
            yield from _frame(zstandard, feed, head)
        elif len(head) < len(MAGIC):
            raise feed.damage("cut short within a header, or followed by something else")
        else:
            raise feed.damage("something that is not zstd follows")


def _frame(zstandard: Any, feed: _Feed, head: bytes) -> Iterator[bytes]:
    """The content of the frame that begins with `head`."""
    try:
        found = zstandard.get_frame_parameters(head)
        header = feed.take(zstandard.frame_header_size(head))
    except zstandard.ZstdError as error:
        what = "cut short" if len(head) < _LONGEST_HEADER else "damaged"
        raise feed.damage(f"{what} within the header of a frame: {error}") from None
    if found.dict_id:
        raise feed.damage(f"needs dictionary {found.dict_id}", hint="write it without a dictionary")
    if found.window_size > LARGEST_WINDOW_BYTES:
        raise feed.damage(
            f"needs a window of {found.window_size:,} bytes, more than {LARGEST_WINDOW_BYTES:,}",
            hint="compress it anew with zstd --long=27 or less",
        )
    frame = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW_BYTES).decompressobj()
    for piece in _pieces(feed, header, checksum=found.has_checksum):
        try:
            out = frame.decompress(piece)
        except zstandard.ZstdError as error:
            raise feed.damage(f"damaged: {error}") from None
        feed.made += len(out)
        if out:
            yield out
    if not frame.eof:
        raise feed.damage("damaged: its last block is not where it should be")


def _pieces(feed: _Feed, header: bytes, *, checksum: bool) -> Iterator[bytes]:
    """A frame in pieces of a few blocks."""
    held, last = [header], False
    while not last:
        head = feed.take(3)
        block = int.from_bytes(head, "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if kind == _RESERVED or size > _BLOCK_BYTES:
            raise feed.damage("damaged: not a block of any known kind")
        held += [head, feed.take(1 if kind == _RLE else size)]
        if len(held) >= 2 * _BLOCKS and not last:
            yield b"".join(held)
            held = []
    yield b"".join([*held, feed.take(4)] if checksum else held)


class _Feed:
    """Stored bytes by exact counts, and how far they go, for messages."""

    def __init__(self, stored: Iterator[bytes], path: str) -> None:
        self._stored, self._path = stored, path
        self._held, self._at = b"", 0
        self.used = 0  # bytes of the file
        self.made = 0  # bytes of content

    def peek(self, count: int) -> bytes:
        """Up to `count` bytes ahead, fewer only at the end."""
        while len(self._held) - self._at < count and (piece := next(self._stored, b"")):
            self._held = self._held[self._at :] + piece
            self._at = 0
        return self._held[self._at : self._at + count]

    def take(self, count: int) -> bytes:
        """Exactly `count` bytes; a file that ends before is cut short."""
        taken = self.peek(count)
        if len(taken) < count:
            raise self.damage("cut short")
        self._at += count
        self.used += count
        return taken

    def skip(self, count: int) -> None:
        """Leaves out `count` bytes without holding them."""
        while count:
            some = min(count, _BLOCK_BYTES)
            self.take(some)
            count -= some

    def damage(self, reason: str, *, hint: str = "") -> InvalidInput:
        """An error at this place of the file."""
        place = f"zstd, after {self.used:,} stored bytes and {self.made:,} bytes of text"
        return damaged(self._path, f"{place}: {reason}", hint=hint)
