"""The repetition rules of Gopher (Rae et al. 2021, arXiv 2112.11446, table A1 and section A.1.1).

- Repeated lines and paragraphs: those that stand in the document before, by number and characters.
- The commonest run of n words (n = 2, 3, 4; the first in the text among equally common ones), where
  it occurs at least twice: the characters of all its occurrences.
- Repeated runs of n words (n = 5 ... 10): characters of words that are part of a run which stands
  in the document before, each word counted once however many such runs it is in.

All are shares of the document's characters. Words are those of `words.table`, case folded; the
characters of a word are those from its beginning to the next word but for white space, so that
punctuation counts with the word before it. A share has no more than the whole.

datatrove 0.10 differs in that punctuation makes words of its own and case counts; in that a
document without any repetition has a commonest run, too (one of its own words, which matters below
a dozen words); and in that it walks on n words from each repeated run, so that the rest of a
repeated passage (its length modulo n) goes uncounted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.filters.measure import Measure, shares, sums
from meshwright.data.words.characters import SPACE, marked
from meshwright.data.words.ranks import Ranks
from meshwright.data.words.runs import Weighed, repeated_runs, top_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.documents import Offsets, Verdict
    from meshwright.data.settings import GopherRepetition
    from meshwright.data.words.table import Table


def judge(table: Table, settings: GopherRepetition) -> Verdict:
    """Which documents each rule drops."""
    return {measure.reason: measure.fails for measure in measures(table, settings)}


def measures(table: Table, settings: GopherRepetition) -> tuple[Measure, ...]:
    """The figures of each document, in the order of the rules.

    Runs of words are looked for in documents that no rule before has dropped; what is certainly
    within its limit, or was not looked for, has the share 0.
    """
    found = list(_of_lines(table, settings))
    weighed = Weighed(
        words=table.word_hash,
        weights=_weights(table),
        bounds=table.word_bounds,
        whole=table.lengths,
    )
    for names, look, says in _RUNS:
        limits = {n: float(getattr(settings, name)) for n, name in names.items()}
        asked = ~np.any([measure.fails for measure in found], axis=0)
        for n, part in look(weighed.take(asked), limits).items():
            values = np.zeros(len(table))
            values[asked] = np.minimum(part, 1)
            found.append(
                Measure(
                    reason=f"gopher_repetition.{names[n]}",
                    values=values,
                    says=says.format(n=n, value="{value}"),
                    most=limits[n],
                )
            )
    return tuple(found)


_RUNS = (
    (
        {n: f"top_{n}_gram" for n in (2, 3, 4)},
        top_runs,
        "{value} of it is one run of {n} words, repeated",
    ),
    (
        {n: f"duplicate_{n}_grams" for n in (5, 6, 7, 8, 9, 10)},
        repeated_runs,
        "{value} of it is in runs of {n} words that repeat earlier ones",
    ),
)


def _of_lines(table: Table, settings: GopherRepetition) -> Iterator[Measure]:
    for name, stretches in (("line", table.lines), ("paragraph", table.lines.paragraphs)):
        repeats = stretches.repeats
        characters = sums(np.where(repeats, stretches.lengths, 0), stretches.bounds)
        yield Measure(
            reason=f"gopher_repetition.{name}s",
            values=shares(sums(repeats, stretches.bounds), stretches.counts),
            says=f"{{value}} of the {name}s repeat an earlier one",
            most=getattr(settings, f"duplicate_{name}s"),
        )
        yield Measure(
            reason=f"gopher_repetition.{name}_characters",
            values=shares(characters, table.lengths),
            says=f"{{value}} of it are {name}s that repeat an earlier one",
            most=getattr(settings, f"duplicate_{name}_characters"),
        )


def _weights(table: Table) -> Offsets:
    """For each word the characters, but white space, from its beginning to the next."""
    stops = np.append(table.word_start[1:], 0)
    held = table.word_counts > 0
    stops[table.word_bounds[1:][held] - 1] = table.bounds[1:][held]
    white = Ranks(marked(table.characters, SPACE))
    return np.asarray(
        stops - table.word_start - (white.before(stops) - white.before(table.word_start))
    )
