"""The rules of C4 (Raffel et al. 2020, arXiv 1910.10683, section 2.2).

`remove_lines` goes first, as it changes the text: lines that do not end in punctuation, short ones,
such with a word too long, and notices about JavaScript, cookies and terms of use (the phrases of
tensorflow_datasets/text/c4_utils.py, which made the data set). Lines that stay are as they were;
blank ones go. `judge` then drops documents by what is left.

Terminal punctuation is . ? ! " ' and what Unicode has for them in any script, but no ellipsis.
Words of a line stand between white space; letters of scripts without spaces count one each. A
sentence ends where such punctuation, and quotes or brackets that close behind it, meet white space
(or anything, where the sign is one of a script without spaces) within a line; every line ends one.

datatrove 0.10 also cuts "[1]", "[edit]" out of the text (which would damage code and is not in the
paper), and looks for a bracket or lorem ipsum before it removes the line for its phrases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.documents import Documents, bounds_of
from meshwright.data.filters.measure import Measure, counts_between
from meshwright.data.words.characters import BYTE, SPACE, marked, marking
from meshwright.data.words.lines import LINE_FEED, lines_of
from meshwright.data.words.text import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.data.documents import Mask, Offsets, Verdict
    from meshwright.data.settings import C4
    from meshwright.data.words.lines import Lines
    from meshwright.data.words.table import Table
    from meshwright.data.words.text import Text

JAVASCRIPT = (b"javascript",)
POLICY = (
    b"terms of use",
    b"privacy policy",
    b"cookie policy",
    b"uses cookies",
    b"use of cookies",
    b"use cookies",
)
LOREM_IPSUM = b"lorem ipsum"
_DOT = ord(".")
_ENDING = np.frombuffer(marking("terminal", "quote", also=b".?!\"'"), dtype=np.bool_)
_SENTENCE = marking("terminal", "ellipsis", also=b".?!")
_IS_SENTENCE = np.frombuffer(_SENTENCE, dtype=np.bool_)
_CLOSING = np.frombuffer(marking("quote", also=b"\"')]"), dtype=np.bool_)
_SPACE = np.frombuffer(SPACE, dtype=np.bool_)
_CLOSERS = 3  # quotes and brackets behind the end of a sentence that are looked through


def remove_lines(documents: Documents, settings: C4) -> Documents:
    """The documents without the lines that the settings do not want; they may become empty."""
    text = read(documents)
    feeds = np.flatnonzero(text.characters == LINE_FEED)
    lines = lines_of(documents, text.characters, text.bounds, feeds=feeds)
    return _with_lines(documents, lines, _wanted(text, lines, settings))


def _wanted(text: Text, lines: Lines, settings: C4) -> Mask:
    """Which lines stay."""
    wanted = np.ones(len(lines.start), dtype=np.bool_)
    if settings.terminal_punctuation:
        wanted &= _ends_well(text.characters, lines)
    if settings.min_words_per_line > 1 or settings.max_word_length > 0:
        counts, too_long = _words(text, lines, limit=settings.max_word_length)
        wanted &= (counts >= settings.min_words_per_line) & ~too_long
    phrases = (JAVASCRIPT if settings.javascript_lines else ()) + (
        POLICY if settings.policy_lines else ()
    )
    for phrase in phrases:
        wanted[_holding(text.encoded, phrase, lines)] = False
    return wanted


def _ends_well(characters: NDArray[np.uint8], lines: Lines) -> Mask:
    """Whether lines end in terminal punctuation, and not in an ellipsis."""
    dots = lines.last - lines.first >= 2
    for back in range(3):
        dots &= characters[np.maximum(lines.last - back, 0)] == _DOT
    return _ENDING[characters[lines.last]] & ~dots


def _words(text: Text, lines: Lines, *, limit: int) -> tuple[Offsets, Mask]:
    """Words of each line between white space, and whether one is longer than `limit` (0 = none)."""
    dark = ~marked(text.characters, SPACE)
    begins = dark.copy()
    begins[1:] &= ~dark[:-1]
    begins[lines.start] = dark[lines.start]
    at = np.flatnonzero(begins)
    bounds = np.append(np.searchsorted(at, lines.start), len(at))
    counts = np.diff(bounds)
    if len(text.foreign):
        unspaced = text.foreign_of("unspaced")
        counts += np.searchsorted(unspaced, lines.stop) - np.searchsorted(unspaced, lines.start)
    too_long = np.zeros(len(counts), dtype=np.bool_)
    if limit and (np.diff(at, append=len(dark)) > limit).any():
        ends = dark.copy()
        ends[:-1] &= ~dark[1:]
        ends[lines.stop - 1] = dark[lines.stop - 1]
        long = at[np.flatnonzero(ends) - at >= limit]
        too_long[np.searchsorted(lines.start, long, side="right") - 1] = True
    return counts, too_long


def _holding(encoded: bytes, phrase: bytes, lines: Lines) -> NDArray[np.intp]:
    """The lines that hold a phrase (in lower case)."""
    places = np.fromiter(_places(encoded, phrase), dtype=np.int64)
    line = np.searchsorted(lines.start, places, side="right") - 1
    within = (line >= 0) & (places + len(phrase) <= lines.stop[line])
    return line[within]


def _places(encoded: bytes, phrase: bytes) -> Iterator[int]:
    place = encoded.find(phrase)
    while place >= 0:
        yield place
        place = encoded.find(phrase, place + 1)


def _with_lines(documents: Documents, lines: Lines, wanted: Mask) -> Documents:
    """The documents with those lines only, a line feed between two."""
    owner = np.repeat(np.arange(len(documents)), lines.counts)[wanted]
    first, stop = lines.first_byte[wanted], lines.last_byte[wanted]
    follows = np.zeros(len(owner), dtype=np.bool_)  # another line of the same document
    follows[:-1] = owner[1:] == owner[:-1]
    kept = np.zeros(len(documents.text) + 1, dtype=np.int8)
    kept[first] = 1
    kept[stop[~follows]] -= 1
    kept[stop[follows] + 1] -= 1
    lengths = np.bincount(owner, weights=stop - first + follows, minlength=len(documents))
    inside = np.cumsum(kept[:-1], dtype=np.int8).view(np.bool_)
    return Documents(
        text=documents.text[inside],
        bounds=bounds_of(lengths.astype(np.int64)),
        input=documents.input,
        line=documents.line,
        ids=documents.ids,
    )


def judge(table: Table, settings: C4) -> Verdict:
    """Which documents go for what is left of them."""
    return {measure.reason: measure.fails for measure in measures(table, settings)}


def measures(table: Table, settings: C4) -> tuple[Measure, ...]:
    """The figures of each document."""
    places = np.fromiter(_places(table.encoded, LOREM_IPSUM), dtype=np.int64)
    owner = np.searchsorted(table.bounds, places, side="right") - 1
    lorem = np.zeros(len(table))
    lorem[owner[places + len(LOREM_IPSUM) <= table.bounds[1:][owner]]] = 1
    brackets = counts_between(table.places(b"{"), table.bounds)
    return (
        Measure(
            reason="c4.lorem_ipsum",
            values=lorem,
            says='{value} "lorem ipsum" or more',
            most=0 if settings.lorem_ipsum else np.inf,
            share=False,
        ),
        Measure(
            reason="c4.curly_bracket",
            values=brackets.astype(np.float64),
            says="{value} curly brackets",
            most=0 if settings.curly_bracket else np.inf,
            share=False,
        ),
        Measure(
            reason="c4.sentences",
            values=sentences(table).astype(np.float64),
            says="{value} sentences left",
            least=max(settings.min_sentences, 1),  # nothing left is no document
            share=False,
        ),
    )


def sentences(table: Table) -> Offsets:
    """How many sentences each document has."""
    lines, characters = table.lines, np.frombuffer(table.encoded, dtype=np.uint8)
    marks = np.flatnonzero(marked(table.characters, _SENTENCE))
    if not len(lines.start):
        return lines.counts
    behind = marks + 1
    for _ in range(_CLOSERS):
        behind += _CLOSING[characters[behind]]
    owner = np.maximum(np.searchsorted(lines.start, marks, side="right") - 1, 0)
    follower = characters[behind]
    unspaced = (characters[marks] == BYTE["terminal"]) & ~_IS_SENTENCE[follower]
    ends = (behind <= lines.last[owner]) & (_SPACE[follower] | unspaced)
    return lines.counts + counts_between(marks[ends], table.bounds)
