"""The words of a batch of documents, as columns.

A **word** is a maximal run of letters, numbers and the marks that follow them (general categories
L, N, M, and joiners within), case folded by Unicode's simple folding. Everything else stands
between words: "it's", "well-known" and "snake_case" are two words each, and so is "3.14"; which
apostrophe "don't" has makes no difference. For English this is what splitters of words find (spaCy
makes "do" and "n't" of the latter), but for punctuation, which is no word here.

Scripts that put no spaces between words (Han, Hiragana, Katakana, Bopomofo, Thai, Lao, Khmer,
Myanmar and the Tai scripts) give one word for each letter with its marks, so that a line of Chinese
is not one long word. Hangul has spaces and is treated like Latin.

A word's hash depends on its folded characters alone. Documents do not touch: a word ends where its
document does.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.words.characters import BYTE, WORD, marked, marking
from meshwright.data.words.hashing import hashes_of, mixed
from meshwright.data.words.lines import Lines, chunks_of, lines_of
from meshwright.data.words.text import PADDING, Text, read

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask, Offsets
    from meshwright.data.words.layout import Layout

_SIGNS = marking("terminal", "ellipsis", also=b"\n#.?!{")  # their places are found together
_MARKS = (BYTE["mark"], BYTE["unspaced_mark"])


@dataclass(frozen=True, kw_only=True)
class Table:
    """Words of a batch. Offsets count characters (code points), not bytes.

    Document i has characters[bounds[i]:bounds[i + 1]] and the words word_bounds[i] to
    word_bounds[i + 1]. `characters` is as `words.characters` says.
    """

    documents: Documents
    encoded: bytes  # the characters, and zeros behind them
    bounds: Offsets  # [documents + 1]
    word_start: Offsets  # [words]
    word_length: Offsets  # [words]
    word_hash: NDArray[np.uint64]  # [words]
    word_bounds: Offsets  # [documents + 1]
    layout: Layout | None = None  # where it is known

    @staticmethod
    def of(documents: Documents) -> Table:
        """The table of a batch."""
        return Table._of(documents, read(documents), None)

    @staticmethod
    def laid_out(layout: Layout) -> Table:
        """The table of a batch whose layout is known."""
        return Table._of(layout.documents, layout.text, layout)

    @staticmethod
    def _of(documents: Documents, text: Text, layout: Layout | None) -> Table:
        starts, stops = _runs(text)
        starts, stops = _without_leading_marks(text, starts, stops)
        lengths = stops - starts
        return Table(
            documents=documents,
            encoded=text.encoded,
            bounds=text.bounds,
            word_start=starts,
            word_length=lengths,
            word_hash=hashes_of(
                text.encoded, starts, lengths, extra=_of_foreign(text, starts, stops)
            ),
            word_bounds=np.searchsorted(starts, text.bounds).astype(np.int64),
            layout=layout,
        )

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def characters(self) -> NDArray[np.uint8]:
        """Every character of the batch."""
        return np.frombuffer(self.encoded, dtype=np.uint8)[:-PADDING]

    @property
    def word_counts(self) -> Offsets:
        """Words of each document."""
        return np.diff(self.word_bounds)

    @property
    def lengths(self) -> Offsets:
        """Characters of each document."""
        return np.diff(self.bounds)

    @cached_property
    def chunks(self) -> Offsets:
        """Where begins what stands between white space, and in one document."""
        if self.layout is not None:
            return self.layout.chunks
        return chunks_of(self.characters, self.bounds)

    @cached_property
    def lines(self) -> Lines:
        """Lines that are not blank."""
        if self.layout is not None:
            return self.layout.lines
        feeds = self.places(b"\n")
        return lines_of(
            self.documents, self.characters, self.bounds, feeds=feeds, chunks=self.chunks
        )

    def places(self, sign: bytes) -> Offsets:
        """Where one of the characters that `signs` finds stands."""
        places, signs = self.signs
        return np.asarray(places[signs == sign[0]], dtype=np.int64)

    @cached_property
    def signs(self) -> tuple[Offsets, NDArray[np.uint8]]:
        """Where any line feed, # . ? ! { ellipsis or end of a sentence stands, and which."""
        places = np.flatnonzero(marked(self.characters, _SIGNS))
        return places, self.characters[places]

    def take(self, chosen: Mask) -> Table:
        """The table of those documents that `chosen` marks; nothing is computed anew."""
        if chosen.all():
            return self
        words = np.repeat(chosen, self.word_counts)
        moved = bounds_of(self.lengths[chosen])
        counts = self.word_counts[chosen]
        shift = np.repeat(self.bounds[:-1][chosen] - moved[:-1], counts)
        return Table(
            documents=self.documents.take(chosen),
            encoded=self.characters[np.repeat(chosen, self.lengths)].tobytes() + bytes(PADDING),
            bounds=moved,
            word_start=self.word_start[words] - shift,
            word_length=self.word_length[words],
            word_hash=self.word_hash[words],
            word_bounds=bounds_of(counts),
        )


def _runs(text: Text) -> tuple[Offsets, Offsets]:
    """Where words begin and where they end, those of marks alone included."""
    inside = marked(text.characters, WORD)
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    edges += 1
    if len(inside) and inside[0]:
        edges = np.insert(edges, 0, 0)
    if len(inside) and inside[-1]:
        edges = np.append(edges, len(inside))
    starts, stops = edges[::2].copy(), edges[1::2].copy()
    cuts = _cuts(text, inside)
    if not len(cuts):
        return starts, stops
    starts, stops = np.append(starts, cuts), np.append(stops, cuts)
    starts.sort(kind="stable")
    stops.sort(kind="stable")
    return starts, stops


def _cuts(text: Text, inside: NDArray[np.bool_]) -> Offsets:
    """Where a word follows another at once: between documents, in scripts without spaces.

    Every letter of such a script is a word, with the marks behind it.
    """
    letters, after = text.foreign_of("unspaced"), text.foreign_of("unspaced", "unspaced_mark") + 1
    after = after[after < len(inside)]
    following = text.characters[after]
    after = after[(following != _MARKS[0]) & (following != _MARKS[1])]
    cuts = np.concatenate([text.bounds, letters, after])
    cuts = cuts[(cuts > 0) & (cuts < len(inside))]
    return np.unique(cuts[inside[cuts] & inside[cuts - 1]])


def _without_leading_marks(text: Text, starts: Offsets, stops: Offsets) -> tuple[Offsets, Offsets]:
    """A mark makes no word by itself: words begin with their first letter or number."""
    marks = text.foreign_of("mark", "unspaced_mark")
    led = np.searchsorted(starts, marks)
    leads = np.append(starts, -1)[led] == marks
    led, leading = led[leads], marks[leads]
    if not len(led):
        return starts, stops
    ends = marks[np.append(np.flatnonzero(np.diff(marks) != 1), len(marks) - 1)] + 1
    starts[led] = ends[np.searchsorted(ends, leading, side="right")]
    kept = starts < stops
    return starts[kept], stops[kept]


def _of_foreign(text: Text, starts: Offsets, stops: Offsets) -> NDArray[np.uint64] | None:
    """What the characters beyond ASCII add to the hash of each word: their codes and places."""
    if not len(text.foreign) or not len(starts):
        return None
    word = np.searchsorted(starts, text.foreign, side="right") - 1
    held = (word >= 0) & (text.foreign < stops[word])
    word, place = word[held], text.foreign[held] - starts[word[held]]
    values = (place.astype(np.uint64) << np.uint64(21)) + text.folded[held] + np.uint64(1 << 63)
    total = np.zeros(len(starts), dtype=np.uint64)
    if len(word):
        first = np.flatnonzero(np.diff(word, prepend=-1))
        total[word[first]] = np.add.reduceat(mixed(values), first)
    return total
