"""The page of a diagnosis: three sentences, the split of the step, ranks, causes, what was left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.table import Column, table_of
from meshwright.report.diagnosis import figures, tables
from meshwright.report.diagnosis.causes import cause_lines, promises_table
from meshwright.report.diagnosis.logs import log_blocks
from meshwright.report.diagnosis.split import split_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.base.table import Table
    from meshwright.diagnose.diagnosis import Diagnosis
    from meshwright.diagnose.trace.columns import Left
    from meshwright.report.page import Block

_MOST_LEFT = 15
_FEW_RANKS = 2


def diagnosis_page(found: Diagnosis) -> list[Block]:
    """All that a terminal shows."""
    return [
        *map(figures.line, found.summary),
        *_split(found),
        *_ranks(found),
        *_causes(found),
        *_promises(found),
        *_what_ifs(found),
        *_communication(found),
        *_kernels(found),
        *log_blocks(found.evidence),
        *_guards(found.guards),
        *_left(found.left),
    ]


def _split(found: Diagnosis) -> Iterator[Block]:
    split = split_of(found.evidence)
    if split is not None:
        yield from ("", tables.split_table(split))


def _ranks(found: Diagnosis) -> Iterator[Block]:
    if len(found.evidence.ranks) < _FEW_RANKS:
        return
    table, more = tables.ranks_table(found.evidence)
    yield from ("", table)
    if more:
        yield f"and {more:,} more ranks, which others wait for less; --json has all of them"


def _communication(found: Diagnosis) -> Iterator[Block]:
    across = found.evidence.across
    if across is not None and across.axes:
        yield from ("", tables.axes_table(across))
    table, more = tables.collectives_table(found.evidence)
    if not table.rows:
        return
    yield from ("", table)
    if more:
        yield f"and {more:,} more with less exposed time"
    if any("*" in row.cells["rate"] for row in table.rows):
        yield "* fastest instance of one rank: it may include waiting for others"


def _kernels(found: Diagnosis) -> Iterator[Block]:
    table = tables.kernels_table(found.evidence.ranks)
    if table.rows:
        yield from ("", table)


def _what_ifs(found: Diagnosis) -> Iterator[Block]:
    table = tables.what_if_table(found.evidence, found.step_us) if found.step_us else None
    if table is not None and table.rows:
        yield from ("", table)


def _causes(found: Diagnosis) -> Iterator[Block]:
    if found.causes:
        yield from ("", *cause_lines(found.causes, said=found.guards))


def _promises(found: Diagnosis) -> Iterator[Block]:
    if found.evidence.promises:
        yield from ("", promises_table(found.evidence.promises))


def _guards(guards: Sequence[str]) -> Iterator[Block]:
    if guards:
        yield ""
        yield from (f"note: {figures.line(guard)}" for guard in guards)


def _left(left: Sequence[Left]) -> Iterator[Block]:
    if not left:
        return
    table, more = left_table(left, most=_MOST_LEFT)
    yield from ("", table)
    if more:
        yield f"and {more:,} more; --json has all of them"


def left_table(left: Sequence[Left], *, most: int) -> tuple[Table, int]:
    """What was left out, that which stood for most time first, and how much more there is."""
    order = sorted(left, key=lambda one: (-one.time_us, -one.count))
    rows = [
        {
            "what": figures.path(one.what, 48),
            "count": f"{one.count:,}",
            "time": figures.duration(one.time_us) if one.time_us else "",
            "reason": figures.line(one.reason),
        }
        for one in order[:most]
    ]
    columns = (
        Column(key="what", title="left out"),
        Column(key="count", title="count", align="right"),
        Column(key="time", title="stood for", align="right"),
        Column(key="reason", title="because"),
    )
    return table_of(columns, rows), len(order) - len(rows)
