"""Documents from plain text: the whole file, its lines, or its paragraphs.

Bytes that are not UTF-8 become U+FFFD, and such documents are counted. A byte order mark in front
of a document is left out. Blank lines, and files of nothing else, are no documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.data.source.lines import lines_of
from meshwright.data.source.rejects import EXCERPT_BYTES
from meshwright.data.source.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from meshwright.data.source.lines import Lines
    from meshwright.data.source.opening import Chunks

BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\v\f"


def whole_rows(
    chunks: Iterator[bytes], longest_bytes: int, reject: Callable[[int, str, bytes], None]
) -> Generator[Rows, None, int]:
    """The file as one document, its number 1."""
    parts: list[bytes] = []
    total = 0
    for chunk in chunks:
        total += len(chunk)
        parts.append(chunk)
        if total > longest_bytes:
            reject(1, "too_long", b"".join(parts)[:EXCERPT_BYTES])
            return 1
    text = b"".join(parts).removeprefix(BOM)
    if text.strip():
        yield _rows([text], [1])
    return 1


def line_rows(
    blocks: Iterable[Lines], reject: Callable[[int, str, bytes], None]
) -> Generator[Rows, None, int]:
    """Every line that is not blank; returns how many lines there were."""
    count = 0
    for block in blocks:
        count += len(block.lines)
        if block.too_long:
            reject(block.first, "too_long", block.lines[0])
            continue
        lines = [line.removeprefix(BOM) for line in block.lines]
        numbers = [i for i, line in enumerate(lines, block.first) if line.strip(_BLANK)]
        yield _rows([lines[i - block.first].removesuffix(b"\r") for i in numbers], numbers)
    return count


def paragraph_rows(
    chunks: Chunks, longest_bytes: int, reject: Callable[[int, str, bytes], None]
) -> Generator[Rows, None, int]:
    """Every run of lines that are not blank; its number is that of its first line.

    A paragraph belongs to the range that holds the blank line before it, so that no range needs to
    look back: it skips what precedes its first blank line and reads on past its end to the next.
    """
    count = 0
    paragraph = _Paragraph(longest_bytes, skipping=chunks.before)
    for block in lines_of(chunks, longest_bytes=longest_bytes, beyond=True):
        if not block.beyond:
            count += len(block.lines)
        rows, done = paragraph.feed(block, reject)
        if rows.texts:
            yield rows
        if done:
            return count
    last = paragraph.closed(reject)
    if last:
        yield _rows([last[1]], [last[0]])
    return count


class _Paragraph:
    """The paragraph that is being read."""

    def __init__(self, longest_bytes: int, *, skipping: bool) -> None:
        self._longest_bytes = longest_bytes
        self._skipping = skipping  # the rest of one that belongs to the range before
        self._first = 0
        self._lines: list[bytes] = []
        self._bytes = 0

    def feed(self, block: Lines, reject: Callable[[int, str, bytes], None]) -> tuple[Rows, bool]:
        """The paragraphs that end in a block, and whether the range's last has."""
        texts: list[bytes] = []
        numbers: list[int] = []
        if block.beyond and self._skipping:
            return _rows(texts, numbers), True
        for number, line in enumerate(block.lines, block.first):
            if line.removeprefix(BOM).strip(_BLANK):
                self._add(number, line, too_long=block.too_long)
                continue
            ended = self.closed(reject)
            self._skipping = False
            if ended:
                numbers.append(ended[0])
                texts.append(ended[1])
            if block.beyond:
                return _rows(texts, numbers), True
        return _rows(texts, numbers), False

    def _add(self, number: int, line: bytes, *, too_long: bool) -> None:
        if self._skipping:
            return
        self._first = self._first or number
        self._bytes += len(line) + 1 + too_long * self._longest_bytes
        if self._bytes <= self._longest_bytes + 1:
            self._lines.append(line)
        else:
            self._lines = [b"\n".join([*self._lines, line])[:EXCERPT_BYTES]]

    def closed(self, reject: Callable[[int, str, bytes], None]) -> tuple[int, bytes] | None:
        """The number and bytes of the paragraph that ends here, if there is one."""
        first, text, size = self._first, b"\n".join(self._lines), self._bytes
        self._first, self._lines, self._bytes = 0, [], 0
        if not first:
            return None
        if size > self._longest_bytes + 1:
            reject(first, "too_long", text[:EXCERPT_BYTES])
            return None
        return first, text.removeprefix(BOM).removesuffix(b"\r")


def _rows(texts: list[bytes], numbers: list[int]) -> Rows:
    """Documents of these bytes, and how many of them were not UTF-8."""
    mended = [repaired(text) for text in texts]
    changed = sum(new is not old for new, old in zip(mended, texts, strict=True))
    return Rows(mended, numbers, repaired=changed)


def repaired(text: bytes) -> bytes:
    """The text as valid UTF-8; itself where it is that already."""
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode(errors="replace").encode()
    return text
