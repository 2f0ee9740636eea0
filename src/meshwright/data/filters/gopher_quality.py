"""The quality rules of Gopher (Rae et al. 2021, arXiv 2112.11446, table A1).

Words are those of `words.table`, so punctuation counts neither as words nor among their letters.
Lines are those that are not blank. The share of alphabetic words alone is taken of what stands
between white space, as "3.5", "|" and "--" are what that rule is for. A bullet is "-" or one of the
signs that Unicode calls so; an ellipsis is "..." or its sign.

Two rules are about English: the mean length of words and the stop words. They are not applied to a
document most of whose words are in scripts without spaces between words (Chinese, Japanese, Thai,
...), where a word here is one letter. Other languages need `min_stop_words = 0`.

datatrove 0.10 differs in that a word splitter (spaCy) makes words of punctuation, which then count
against the alphabetic ones, and in that blank lines count.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.documents import documents_of
from meshwright.data.filters.measure import Measure, counts_between, shares, sums
from meshwright.data.words.characters import BYTE, LETTERS, marked
from meshwright.data.words.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Mask, Offsets, Verdict
    from meshwright.data.settings import GopherQuality
    from meshwright.data.words.lines import Lines

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
_DOT, _BULLET, _ELLIPSIS = ord("."), BYTE["bullet"], BYTE["ellipsis"]


def judge(table: Table, settings: GopherQuality) -> Verdict:
    """Which documents each rule drops."""
    return {measure.reason: measure.fails for measure in measures(table, settings)}


def measures(table: Table, settings: GopherQuality) -> tuple[Measure, ...]:
    """The figures of each document."""
    words, lines = table.word_counts, table.lines
    english = ~_mostly_unspaced(table)
    lengths = np.where(english, shares(sums(table.word_length, table.word_bounds), words), np.nan)
    stop = np.where(english, _stop_words(table), np.nan)
    bullets = _is_bullet(table, lines.first)
    ellipses = _ends_in_ellipsis(table.characters, lines)
    return (
        Measure(
            reason="gopher_quality.words",
            values=words.astype(np.float64),
            says="{value} words",
            least=settings.min_words,
            most=settings.max_words,
            share=False,
        ),
        Measure(
            reason="gopher_quality.word_length",
            values=lengths,
            says="words of {value} characters in the mean",
            least=settings.min_mean_word_length,
            most=settings.max_mean_word_length,
            share=False,
        ),
        Measure(
            reason="gopher_quality.symbols",
            values=shares(_symbols(table), words),
            says="{value} as many # or ellipses as words",
            most=settings.max_symbol_ratio,
        ),
        Measure(
            reason="gopher_quality.bullets",
            values=shares(sums(bullets, lines.bounds), lines.counts),
            says="{value} of the lines begin with a bullet",
            most=settings.max_bullet_lines,
        ),
        Measure(
            reason="gopher_quality.ellipses",
            values=shares(sums(ellipses, lines.bounds), lines.counts),
            says="{value} of the lines end in an ellipsis",
            most=settings.max_ellipsis_lines,
        ),
        Measure(
            reason="gopher_quality.alphabetic",
            values=_alphabetic(table),
            says="{value} of the words hold a letter",
            least=settings.min_alphabetic_words,
        ),
        Measure(
            reason="gopher_quality.stop_words",
            values=stop,
            says="{value} of the commonest English words",
            least=settings.min_stop_words,
            share=False,
        ),
    )


def _mostly_unspaced(table: Table) -> Mask:
    """Whether more than half of the words are in scripts without spaces."""
    if len(table.characters) == len(table.documents.text):
        return np.zeros(len(table), dtype=np.bool_)
    unspaced = table.characters[table.word_start] == BYTE["unspaced"]
    return 2 * sums(unspaced, table.word_bounds) > table.word_counts


def _stop_words(table: Table) -> Offsets:
    """How many different stop words each document has."""
    ends, hashes = table.word_hash.astype(np.uint16), _stop_hashes()
    maybe = np.zeros(len(ends), dtype=np.bool_)
    for value in hashes:
        maybe |= ends == value.astype(np.uint16)
    places = np.flatnonzero(maybe)
    likely = table.word_hash[places]
    found = np.zeros(len(table), dtype=np.int64)
    for value in hashes:
        found += counts_between(places[likely == value], table.word_bounds) > 0
    return found


@cache
def _stop_hashes() -> tuple[np.uint64, ...]:
    return tuple(Table.of(documents_of([" ".join(STOP_WORDS)])).word_hash)


def _symbols(table: Table) -> Offsets:
    """Hash signs or ellipses of each document, whichever are more."""
    hashes = counts_between(table.places(b"#"), table.bounds)
    signs = counts_between(table.places(bytes([_ELLIPSIS])), table.bounds)
    dots = table.places(b".")
    owner = np.searchsorted(table.bounds, dots, side="right")
    begins = np.flatnonzero((np.diff(dots, prepend=-9) != 1) | (np.diff(owner, prepend=0) != 0))
    threes = np.diff(np.append(begins, len(dots))) // 3
    first = np.repeat(dots[begins], threes)
    ellipses: Offsets = signs + counts_between(first, table.bounds)
    return np.maximum(hashes, ellipses)


def _is_bullet(table: Table, first: Offsets) -> Mask:
    characters = table.characters[first]
    return np.asarray((characters == ord("-")) | (characters == _BULLET))


def _ends_in_ellipsis(characters: NDArray[np.uint8], lines: Lines) -> Mask:
    """Which lines do."""
    dots = lines.last - lines.first >= 2
    for back in range(3):
        dots &= characters[np.maximum(lines.last - back, 0)] == _DOT
    return np.asarray(dots | (characters[lines.last] == _ELLIPSIS))


def _alphabetic(table: Table) -> NDArray[np.float64]:
    """Share of the stretches between white space that hold a letter; NaN where there is none."""
    at, encoded = table.chunks, np.frombuffer(table.encoded, dtype=np.uint8)
    letters = marked(encoded, LETTERS)
    if not len(at):
        return np.full(len(table), np.nan)
    lettered = letters[at]
    others = np.flatnonzero(~lettered)
    ends = np.append(at, len(table.characters))[others + 1]
    within = np.logical_or.reduceat(letters, np.stack([at[others], ends], axis=1).ravel())[::2]
    lettered[others] = within
    chunks = np.searchsorted(at, table.bounds)
    return np.where(np.diff(chunks) > 0, shares(sums(lettered, chunks), np.diff(chunks)), np.nan)
