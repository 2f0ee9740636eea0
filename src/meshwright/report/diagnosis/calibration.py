"""What was measured of a machine, figure by figure, and what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.table import Column, table_of
from meshwright.base.units import format_number
from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.page import left_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.diagnose.calibrate.noun import Calibration
    from meshwright.report.page import Block

_MOST, _MOST_LEFT = 40, 10


def calibration_blocks(found: Calibration) -> Iterator[Block]:
    """A row for each coefficient with what it rests on, then what could not be trusted."""
    rows = [
        {
            "what": figures.name(one.what, 48),
            "values": ", ".join(
                f"{figures.name(key, 24)} {format_number(value)}"
                for key, value in one.values.items()
            ),
            "points": f"{one.points:,}",
            "spread": figures.share(one.spread),
            "confidence": one.confidence,
        }
        for one in found.coefficients[:_MOST]
    ]
    columns = (
        Column(key="what", title="measured"),
        Column(key="values", title="as"),
        Column(key="points", title="from", align="right"),
        Column(key="spread", title="spread", align="right"),
        Column(key="confidence", title="confidence"),
    )
    if rows:
        yield table_of(columns, rows)
    if len(found.coefficients) > _MOST:
        yield f"and {len(found.coefficients) - _MOST:,} more"
    if found.left:
        table, more = left_table(found.left, most=_MOST_LEFT)
        yield from ("", table)
        if more:
            yield f"and {more:,} more"
