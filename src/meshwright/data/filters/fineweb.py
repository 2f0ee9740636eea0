"""The rules that FineWeb adds (Penedo et al. 2024, arXiv 2406.17557, section 3.6).

Lines are those that are not blank; white space at their ends does not hide their punctuation, which
is a full stop, question or exclamation mark of any script (Unicode's Sentence_Terminal).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.filters.measure import Measure, counts_between, shares, sums
from meshwright.data.words.characters import marking

if TYPE_CHECKING:
    from meshwright.data.documents import Verdict
    from meshwright.data.settings import FineWeb
    from meshwright.data.words.table import Table

_PUNCTUATION = np.frombuffer(marking("terminal", also=b".?!"), dtype=np.bool_)


def judge(table: Table, settings: FineWeb) -> Verdict:
    """Which documents each rule drops."""
    return {measure.reason: measure.fails for measure in measures(table, settings)}


def measures(table: Table, settings: FineWeb) -> tuple[Measure, ...]:
    """The figures of each document; one without words has no lines and fails the first rule."""
    lines = table.lines
    feeds = counts_between(table.places(b"\n"), table.bounds)
    punctuated = _PUNCTUATION[table.characters[lines.last]]
    short = lines.lengths <= settings.short_line_characters
    repeated = np.where(lines.repeats, lines.lengths, 0)
    return (
        Measure(
            reason="fineweb.punctuated_lines",
            values=shares(sums(punctuated, lines.bounds), lines.counts),
            says="{value} of the lines end in . ? or !",
            least=settings.min_punctuated_lines,
        ),
        Measure(
            reason="fineweb.short_lines",
            values=shares(sums(short, lines.bounds), lines.counts),
            says=f"{{value}} of the lines have {settings.short_line_characters} characters or less",
            most=settings.max_short_lines,
        ),
        Measure(
            reason="fineweb.duplicate_lines",
            values=shares(sums(repeated, lines.bounds), table.lengths - feeds),
            says="{value} of its characters are in repeated lines",
            most=settings.max_duplicate_line_characters,
        ),
        Measure(
            reason="fineweb.newlines",
            values=shares(feeds, table.word_counts),
            says="{value} line ends for each word",
            most=settings.max_newlines_per_word,
            share=False,
        ),
    )
