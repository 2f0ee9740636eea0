"""A batch laid out in lines, and the same with some of its lines taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import Documents, bounds_of
from meshwright.data.words.lines import LINE_FEED, Lines, chunks_of, lines_of
from meshwright.data.words.text import PADDING, Text, read

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Mask, Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The characters of a batch, its lines, and where what stands between white space begins."""

    text: Text
    chunks: Offsets
    lines: Lines

    @property
    def documents(self) -> Documents:
        """The batch."""
        return self.lines.documents

    @property
    def chunk_counts(self) -> Offsets:
        """Chunks of each line."""
        return np.diff(self.lines.chunk, append=len(self.chunks))


def layout_of(documents: Documents) -> Layout:
    """The layout of a batch."""
    text = read(documents)
    characters = text.characters
    feeds, chunks = np.flatnonzero(characters == LINE_FEED), chunks_of(characters, text.bounds)
    lines = lines_of(documents, characters, text.bounds, feeds=feeds, chunks=chunks)
    return Layout(text=text, chunks=chunks, lines=lines)


def with_lines(layout: Layout, wanted: Mask) -> Layout:
    """The layout of the documents with those lines only, a line feed between two."""
    lines, documents = layout.lines, layout.documents
    owner = np.repeat(np.arange(len(documents)), lines.counts)[wanted]
    follows = np.zeros(len(owner), dtype=np.bool_)  # another line of the same document
    follows[:-1] = owner[1:] == owner[:-1]
    start, stop = lines.start[wanted], lines.stop[wanted]
    first_byte, last_byte = lines.first_byte[wanted], lines.last_byte[wanted]
    moved, moved_bytes = (
        bounds_of(stop - start + follows),
        bounds_of(last_byte - first_byte + follows),
    )
    kept, shift = bounds_of(wanted.view(np.int8))[lines.bounds], start - moved[:-1]
    chunks, chunk = _moved_chunks(layout, wanted, shift)
    text = _joined(documents.text.tobytes(), first_byte, last_byte + follows)
    left = Documents(
        text=np.frombuffer(text, dtype=np.uint8),
        bounds=moved_bytes[kept],
        input=documents.input,
        line=documents.line,
        ids=documents.ids,
    )
    foreign, folded = _moved_foreign(layout.text, start, stop=stop, shift=shift)
    return Layout(
        text=Text(
            encoded=_joined(layout.text.encoded, start, stop + follows) + bytes(PADDING),
            bounds=moved[kept],
            foreign=foreign,
            folded=folded,
        ),
        chunks=chunks,
        lines=Lines(
            documents=left,
            start=moved[:-1],
            stop=stop - shift,
            first_byte=moved_bytes[:-1],
            last_byte=moved_bytes[:-1] + (last_byte - first_byte),
            bounds=kept,
            first=lines.first[wanted] - shift,
            last=lines.last[wanted] - shift,
            chunk=chunk,
        ),
    )


def _joined(text: bytes, starts: Offsets, stops: Offsets) -> bytes:
    """Stretches of a text end to end; those that touch are copied together."""
    apart = np.ones(len(starts) + 1, dtype=np.bool_)
    apart[1:-1] = starts[1:] != stops[:-1]
    first, last = starts[apart[:-1]].tolist(), stops[apart[1:]].tolist()
    return b"".join([text[a:b] for a, b in zip(first, last, strict=True)])


def _moved_chunks(layout: Layout, wanted: Mask, shift: Offsets) -> tuple[Offsets, Offsets]:
    """The chunks of the wanted lines in their new places, and the first of each line."""
    counts = layout.chunk_counts
    chunks = layout.chunks if wanted.all() else layout.chunks[np.repeat(wanted, counts)]
    counts = counts[wanted]
    return chunks - np.repeat(shift, counts), bounds_of(counts)[:-1]


def _moved_foreign(
    text: Text, start: Offsets, *, stop: Offsets, shift: Offsets
) -> tuple[Offsets, NDArray[np.uint32]]:
    """The foreign characters of lines in their new places, and their folded code points."""
    begin = np.searchsorted(text.foreign, start)
    counts = np.searchsorted(text.foreign, stop) - begin
    bounds = bounds_of(counts)
    held = np.arange(bounds[-1]) + np.repeat(begin - bounds[:-1], counts)
    return text.foreign[held] - np.repeat(shift, counts), text.folded[held]
