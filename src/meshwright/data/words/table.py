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
from meshwright.data.words.characters import BYTE, CONTINUATION, LOWER, WORD, characters
from meshwright.data.words.hashing import hashes_of, mixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask, Offsets

_MARKS = (BYTE["mark"], BYTE["unspaced_mark"])


@dataclass(frozen=True, kw_only=True)
class Table:
    """Words of a batch. Offsets count characters (code points), not bytes.

    Document i has characters[bounds[i]:bounds[i + 1]] and the words word_bounds[i] to
    word_bounds[i + 1]. `characters` is as `words.characters` says.
    """

    documents: Documents
    characters: NDArray[np.uint8]
    bounds: Offsets  # [documents + 1]
    word_start: Offsets  # [words]
    word_length: Offsets  # [words]
    word_hash: NDArray[np.uint64]  # [words]
    word_bounds: Offsets  # [documents + 1]

    @staticmethod
    def of(documents: Documents) -> Table:
        """The table of a batch."""
        text = _read(documents)
        starts, stops = _runs(text)
        starts, stops = _without_leading_marks(text, starts, stops)
        lengths = stops - starts
        return Table(
            documents=documents,
            characters=text.characters,
            bounds=text.bounds,
            word_start=starts,
            word_length=lengths,
            word_hash=hashes_of(
                text.encoded, starts, lengths, extra=_of_foreign(text, starts, stops)
            ),
            word_bounds=np.searchsorted(starts, text.bounds).astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def word_counts(self) -> Offsets:
        """Words of each document."""
        return np.diff(self.word_bounds)

    @property
    def lengths(self) -> Offsets:
        """Characters of each document."""
        return np.diff(self.bounds)

    @cached_property
    def word_document(self) -> NDArray[np.int32]:
        """The document of each word."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.word_counts)

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
            characters=self.characters[np.repeat(chosen, self.lengths)],
            bounds=moved,
            word_start=self.word_start[words] - shift,
            word_length=self.word_length[words],
            word_hash=self.word_hash[words],
            word_bounds=bounds_of(counts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The characters of a batch; `foreign` are the places of those beyond ASCII."""

    encoded: bytes  # the characters and 8 bytes behind them
    bounds: Offsets
    foreign: Offsets
    folded: NDArray[np.uint32]  # code points of the foreign ones, folded

    @property
    def characters(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.encoded, dtype=np.uint8)[:-8]


def _read(documents: Documents) -> _Text:
    """Characters of a batch from its UTF-8."""
    raw = documents.text.tobytes()
    if raw.isascii():
        return _Text(
            encoded=raw.lower() + bytes(8),
            bounds=documents.bounds,
            foreign=np.zeros(0, dtype=np.int64),
            folded=np.zeros(0, dtype=np.uint32),
        )
    leads = np.flatnonzero(documents.text >= 0xC0)
    codes, extra = _decoded(documents.text, leads)
    before = bounds_of(extra)  # bytes that continue a character, up to each lead
    known = characters()
    folded = (codes + known.fold[codes]).astype(np.uint32)
    classes = np.frombuffer(bytearray(raw), dtype=np.uint8)
    classes[leads] = np.where(folded < 0x80, folded, known.kind[folded])
    still = folded >= 0x80
    return _Text(
        encoded=classes.tobytes().translate(LOWER, CONTINUATION) + bytes(8),
        bounds=documents.bounds - before[np.searchsorted(leads, documents.bounds)],
        foreign=(leads - before[:-1])[still],
        folded=folded[still],
    )


def _decoded(text: NDArray[np.uint8], leads: Offsets) -> tuple[Offsets, Offsets]:
    """Code points of the characters that begin at `leads`; how many bytes more each has."""
    first = text[leads]
    codes = first & np.where(first < 0xE0, 0x1F, np.where(first < 0xF0, 0x0F, 0x07))
    extra = np.zeros(len(leads), dtype=np.int64)
    for further, threshold in ((1, 0xC0), (2, 0xE0), (3, 0xF0)):
        at = np.flatnonzero(first >= threshold)
        codes[at] = codes[at] << 6 | text[leads[at] + further] & 0x3F
        extra[at] = further
    return codes, extra


def _runs(text: _Text) -> tuple[Offsets, Offsets]:
    """Where words begin and where they end."""
    inside = np.frombuffer(text.encoded[:-8].translate(WORD), dtype=np.bool_)
    begins, ends = inside.copy(), inside.copy()
    begins[1:] &= ~inside[:-1]
    ends[:-1] &= ~inside[1:]
    borders = np.unique(text.bounds[(text.bounds > 0) & (text.bounds < len(inside))])
    begins[borders] = inside[borders]
    ends[borders - 1] = inside[borders - 1]
    _cut_unspaced(text, inside, begins=begins, ends=ends)
    return np.flatnonzero(begins), np.flatnonzero(ends) + 1


def _cut_unspaced(
    text: _Text, inside: NDArray[np.bool_], *, begins: NDArray[np.bool_], ends: NDArray[np.bool_]
) -> None:
    """Makes every letter of an unspaced script a word, with the marks behind it."""
    kinds = text.characters[text.foreign]
    letters = text.foreign[kinds == BYTE["unspaced"]]
    begins[letters] = True
    after = text.foreign[(kinds == BYTE["unspaced"]) | (kinds == BYTE["unspaced_mark"])] + 1
    after = after[after < len(inside)]
    following = text.characters[after]
    after = after[inside[after] & (following != _MARKS[0]) & (following != _MARKS[1])]
    begins[after] = True
    ends[after - 1] = inside[after - 1]
    letters = letters[letters > 0]
    ends[letters - 1] = inside[letters - 1]


def _without_leading_marks(text: _Text, starts: Offsets, stops: Offsets) -> tuple[Offsets, Offsets]:
    """A mark makes no word by itself: words begin with their first letter or number."""
    first = text.characters[starts] if len(text.foreign) else text.characters[:0]
    led = np.flatnonzero((first == _MARKS[0]) | (first == _MARKS[1]))
    if not len(led):
        return starts, stops
    kinds = text.characters[text.foreign]
    marks = np.zeros(len(text.characters) + 1, dtype=np.bool_)
    marks[text.foreign] = (kinds == _MARKS[0]) | (kinds == _MARKS[1])
    solid = np.flatnonzero(~marks)
    starts = starts.copy()
    starts[led] = solid[np.searchsorted(solid, starts[led])]
    kept = starts < stops
    return starts[kept], stops[kept]


def _of_foreign(text: _Text, starts: Offsets, stops: Offsets) -> NDArray[np.uint64] | None:
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
