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

from meshwright.data.filters.measure import Measure, counts_between
from meshwright.data.words.characters import BYTE, SPACE, marking
from meshwright.data.words.layout import layout_of, with_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask, Offsets, Verdict
    from meshwright.data.settings import C4
    from meshwright.data.words.layout import Layout
    from meshwright.data.words.lines import Lines
    from meshwright.data.words.table import Table

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
_STEM = b"cookie"  # of most of them: looked for once
_DOT = ord(".")
_ENDING = np.frombuffer(marking("terminal", "quote", also=b".?!\"'"), dtype=np.bool_)
_IS_SENTENCE = np.frombuffer(marking("terminal", "ellipsis", also=b".?!"), dtype=np.bool_)
_CLOSING = np.frombuffer(marking("quote", also=b"\"')]"), dtype=np.bool_)
_SPACE = np.frombuffer(SPACE, dtype=np.bool_)
_CLOSERS = 3  # quotes and brackets behind the end of a sentence that are looked through


def remove_lines(documents: Documents, settings: C4) -> Documents:
    """The documents without the lines that the settings do not want; they may become empty."""
    return without_lines(layout_of(documents), settings).documents


def without_lines(layout: Layout, settings: C4) -> Layout:
    """The same of documents that are laid out."""
    return with_lines(layout, _wanted(layout, settings))


def _wanted(layout: Layout, settings: C4) -> Mask:
    """Which lines stay."""
    text, lines = layout.text, layout.lines
    wanted = np.ones(len(lines.start), dtype=np.bool_)
    if settings.terminal_punctuation:
        wanted &= _ends_well(text.characters, lines)
    if settings.min_words_per_line > 1:
        wanted &= _words(layout) >= settings.min_words_per_line
    if settings.max_word_length > 0:
        wanted[_with_long_word(layout, settings.max_word_length)] = False
    phrases = (JAVASCRIPT if settings.javascript_lines else ()) + (
        POLICY if settings.policy_lines else ()
    )
    for phrase, places in _places_of(text.encoded, phrases):
        wanted[_holding(lines, places, len(phrase))] = False
    return wanted


def _ends_well(characters: NDArray[np.uint8], lines: Lines) -> Mask:
    """Whether lines end in terminal punctuation, and not in an ellipsis."""
    dots = lines.last - lines.first >= 2
    for back in range(3):
        dots &= characters[np.maximum(lines.last - back, 0)] == _DOT
    return _ENDING[characters[lines.last]] & ~dots


def _words(layout: Layout) -> Offsets:
    """Words of each line between white space."""
    counts, text, lines = layout.chunk_counts, layout.text, layout.lines
    if len(text.foreign):
        unspaced = text.foreign_of("unspaced")
        counts += np.searchsorted(unspaced, lines.stop) - np.searchsorted(unspaced, lines.start)
    return counts


def _with_long_word(layout: Layout, limit: int) -> Offsets:
    """The lines with a word of more than `limit` characters between white space."""
    characters, chunks = layout.text.characters, layout.chunks
    long = chunks[np.diff(chunks, append=len(characters)) > limit]
    long = long[~_SPACE[characters[long + limit]]]
    return np.searchsorted(layout.lines.start, long, side="right") - 1


def _holding(lines: Lines, places: Offsets, length: int) -> Offsets:
    """The lines that hold a phrase of this length at one of these places."""
    line = np.searchsorted(lines.start, places, side="right") - 1
    within = (line >= 0) & (places + length <= lines.stop[line])
    return line[within]


def _places_of(encoded: bytes, phrases: tuple[bytes, ...]) -> Iterator[tuple[bytes, Offsets]]:
    """Where each phrase (in lower case) stands."""
    stems = list(_places(encoded, _STEM)) if any(_STEM in phrase for phrase in phrases) else []
    for phrase in phrases:
        before = phrase.find(_STEM)
        if before < 0:
            yield phrase, np.fromiter(_places(encoded, phrase), dtype=np.int64)
            continue
        starts = [place - before for place in stems if place >= before]
        found = [start for start in starts if encoded.startswith(phrase, start)]
        yield phrase, np.array(found, dtype=np.int64)


def _places(encoded: bytes, phrase: bytes) -> Iterator[int]:
    place = encoded.find(phrase)
    while place >= 0:
        yield place
        place = encoded.find(phrase, place + 1)


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
    places, signs = table.signs
    marks = places[_IS_SENTENCE[signs]]
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
