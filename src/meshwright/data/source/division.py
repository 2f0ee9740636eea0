"""The division of inputs into units of work, and the true numbers of lines across them.

Where a plain file is cut, nobody knows how many lines lie before a cut without reading them. So
readers number lines from the start of their span (`Span`), say how many lines the span holds, and
`lines_before` adds the counts up when all are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.data.source.opening import is_url
from meshwright.data.source.unit import UNIT_BYTES, Span, Unit
from meshwright.data.source.waits import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from meshwright.data.source.unit import Input

_EXPANSION = 4  # what a compressed byte counts for
_MOST_SPANS = 4096  # in one unit, of small files


def plan_units(inputs: Sequence[Input], *, unit_bytes: int = UNIT_BYTES) -> tuple[Unit, ...]:
    """Portions of about `unit_bytes` in the order of the inputs, each of a single source.

    Plain lines are cut anywhere (readers see to whole lines), parquet between row groups; whatever
    cannot be cut is a span of its own. Small spans share a unit.
    """
    groups = _grouped(_weighed(inputs, unit_bytes), inputs, unit_bytes)
    return tuple(
        Unit(number=number, spans=tuple(spans), bytes=size)
        for number, (spans, size) in enumerate(groups)
    )


def _weighed(inputs: Sequence[Input], unit_bytes: int) -> Iterator[tuple[Span, int, int]]:
    """Spans, their work in bytes of text and their stored bytes."""
    groups = _groups_of([source for source in inputs if source.format == "parquet"])
    for number, source in enumerate(inputs):
        if source.bytes == 0:
            continue
        if source.format == "parquet":
            yield from _row_groups(number, source, sizes=groups[source.path], unit_bytes=unit_bytes)
        elif source.compression:
            yield Span(number, 0, 1), source.bytes * _EXPANSION, source.bytes
        elif is_whole(source):
            yield Span(number, 0, 1), source.bytes, source.bytes
        else:
            for start in range(0, source.bytes, unit_bytes):
                stop = min(start + unit_bytes, source.bytes)
                yield Span(number, start, stop), stop - start, stop - start


def is_whole(source: Input) -> bool:
    """Whether an input that could be cut is one document, so that its span (0, 1) is all of it."""
    return source.format == "text" and source.documents == "file"


def _groups_of(inputs: Sequence[Input]) -> Mapping[str, tuple[int, ...]]:
    """The bytes of the row groups of parquet files, by path; reads their footers."""
    if not inputs:
        return {}
    from meshwright.data.source.parquet import group_bytes

    paths = [source.path for source in inputs if source.bytes]
    sizes = in_order(group_bytes, paths, at_once=any(map(is_url, paths)))
    return dict(zip(paths, sizes, strict=True))


def _row_groups(
    number: int, source: Input, *, sizes: Sequence[int], unit_bytes: int
) -> Iterator[tuple[Span, int, int]]:
    """Runs of row groups of about `unit_bytes` of text."""
    start = work = 0
    total = max(1, sum(sizes))
    for group, size in enumerate(sizes):
        if work and work + size > unit_bytes:
            yield Span(number, start, group), work, source.bytes * work // total
            start, work = group, 0
        work += size
    if start < len(sizes):
        yield Span(number, start, len(sizes)), work, source.bytes * work // total


def _grouped(
    spans: Iterable[tuple[Span, int, int]], inputs: Sequence[Input], unit_bytes: int
) -> Iterator[tuple[list[Span], int]]:
    """Runs of spans that are no more than a unit's work, and their stored bytes."""
    held: list[Span] = []
    held_work = held_bytes = 0
    for span, work, size in spans:
        fits = held_work + work <= unit_bytes and len(held) < _MOST_SPANS
        if held and not (fits and inputs[held[-1].input].source == inputs[span.input].source):
            yield held, held_bytes
            held, held_work, held_bytes = [], 0, 0
        held.append(span)
        held_work += work
        held_bytes += size
    if held:
        yield held, held_bytes


def lines_before(
    units: Sequence[Unit], counts: Sequence[Sequence[int]]
) -> tuple[Mapping[int, int], ...]:
    """For each unit, by input: how many lines of that input lie before the unit's span of it.

    `counts[u][s]` is what `read_unit` counted for span s of unit u. Adding the number found here
    to `Documents.line` and `Rejected.line` makes them count from the start of the file.
    """
    seen: dict[int, int] = {}
    before: list[Mapping[int, int]] = []
    for unit, counted in zip(units, counts, strict=True):
        before.append({span.input: seen.get(span.input, 0) for span in unit.spans})
        for span, count in zip(unit.spans, counted, strict=True):
            seen[span.input] = seen.get(span.input, 0) + count
    return tuple(before)
