"""Every filter of a build over one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.data.documents import documents_of
from meshwright.data.filters import c4, fineweb, gopher_quality, gopher_repetition
from meshwright.data.words.layout import layout_of
from meshwright.data.words.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask, Offsets, Verdict
    from meshwright.data.filters.measure import Measure
    from meshwright.data.settings import Build

    Measuring = Callable[[Table], tuple[Measure, ...]]

_WORTH = 8  # a table is made anew to save at least this part of it


def apply(
    documents: Documents, build: Build, *, measured: NDArray[np.float32] | None = None
) -> tuple[Table, Verdict]:
    """The word table of a batch, and which of its documents each filter drops.

    The table's documents are those given, after C4 took lines out of them where the build has it.
    A document that an earlier filter drops is not measured by later ones, which name it in none of
    their reasons. The filters go in the order of `reasons.REASONS`. For every document that
    goes, the figure of its first reason is put into `measured` [documents].
    """
    layout = layout_of(documents)
    if build.c4 is not None:
        layout = c4.without_lines(layout, build.c4)
    table = Table.laid_out(layout)
    verdict: dict[str, Mask] = {}
    alive = np.ones(len(table), dtype=np.bool_)
    rest, left = table, np.arange(len(table))
    for _, measures in _filters(build):
        judged = alive.copy()
        for measure in measures(rest):
            fails = np.zeros(len(table), dtype=np.bool_)
            fails[left] = measure.fails
            if measured is not None:
                first = alive[left] & fails[left]
                measured[left[first]] = measure.values[first]
            verdict[measure.reason] = fails & judged
            alive &= ~fails
        rest, left = _fewer(rest, left, alive[left])
    return table, verdict


def _fewer(rest: Table, left: Offsets, alive: Mask) -> tuple[Table, Offsets]:
    """The documents still to judge; all of them where those that go would save too little."""
    if int(rest.lengths[~alive].sum()) * _WORTH < len(rest.characters):
        return rest, left
    return rest.take(alive), left[alive]


def explain(table: Table, index: int, *, reason: str, build: Build) -> str:
    """What was measured of one document of the table and the limit that it broke, in words."""
    chosen = np.zeros(len(table), dtype=np.bool_)
    chosen[index] = True
    single = Table.of(table.documents.take(chosen))  # sooner made than taken out
    for name, measures in _filters(build):
        for measure in measures(single) if reason.startswith(f"{name}.") else ():
            if measure.reason == reason:
                return measure.explained(0)
    raise MeshwrightError(f"{reason} is not a reason of a filter that this build has")


def told(value: float, reason: str, build: Build) -> str:
    """The same from what was measured, without the document."""
    nothing = Table.of(documents_of([]))
    for _, measures in _filters(build):
        for measure in measures(nothing):
            if measure.reason == reason:
                return measure.told(value)
    raise MeshwrightError(f"{reason} is not a reason of a filter that this build has")


def _filters(build: Build) -> Iterator[tuple[str, Measuring]]:
    """The filters that a build has, cheap ones first: they spare the others what they drop."""
    quality, repetition = build.gopher_quality, build.gopher_repetition
    lines, web = build.c4, build.fineweb
    if lines is not None:
        yield "c4", lambda table: c4.measures(table, lines)
    if quality is not None:
        yield "gopher_quality", lambda table: gopher_quality.measures(table, quality)
    if web is not None:
        yield "fineweb", lambda table: fineweb.measures(table, web)
    if repetition is not None:
        yield "gopher_repetition", lambda table: gopher_repetition.measures(table, repetition)
