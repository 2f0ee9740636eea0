"""gzip, streamed: any number of members, at most a chunk of output at a time."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from meshwright.data.source.damage import damaged

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

MAGIC = b"\x1f\x8b"
STORED_BYTES = 32 << 10  # at once; small, for what follows a member is copied
_OUT_BYTES = 128 << 10
_GZIP = 31  # wbits: a window of 32 KiB, with the header and checksum of gzip (zlib's inflateInit2)


def gunzipped(stored: Iterator[bytes], path: str) -> Iterator[bytes]:
    """The members' contents end to end (RFC 1952); zeros after the last are padding.

    Raises InvalidInput for a file that is cut short, damaged or followed by something else.
    """
    made = 0
    rest = next(stored, b"")
    while rest:
        if len(rest) < len(MAGIC):
            rest += next(stored, b"")
        if rest[:2] != MAGIC:
            raise _garbage(path, made, is_cut=rest == MAGIC[:1])
        rest = yield from _member(rest, stored, path)
        made += 1
        while not (rest := rest.lstrip(b"\0")):
            if not (rest := next(stored, b"")):
                return


def _member(piece: bytes, stored: Iterator[bytes], path: str) -> Generator[bytes, None, bytes]:
    """Yields the content of the member that begins with `piece`; returns what follows it."""
    inflater = zlib.decompressobj(_GZIP)
    made = 0
    while True:
        try:
            out = inflater.decompress(piece, _OUT_BYTES)
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]
            raise damaged(path, f"damaged gzip after {made:,} bytes of text: {reason}") from None
        made += len(out)
        if out:
            yield out
        if inflater.eof:
            return inflater.unused_data
        piece = inflater.unconsumed_tail or next(stored, b"")
        if not piece and not out:
            raise damaged(path, f"gzip cut short: ends after {made:,} bytes of text")


def _garbage(path: str, members: int, *, is_cut: bool) -> Exception:
    if is_cut:
        return damaged(path, f"gzip cut short: ends within the header of member {members + 1:,}")
    if not members:
        return damaged(path, "not gzip, although it is taken for it")
    return damaged(path, f"something else than gzip follows the {members:,} members of the file")
