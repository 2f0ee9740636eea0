"""Measured beside predicted: memory by category and phase, traffic by axis, of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, Row, Table
from meshwright.base.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.plan.job import Job
    from meshwright.report.page import Block
    from meshwright.train.measure.compare import Line
    from meshwright.train.measure.plan import Measured

_MEMORY = (
    Column(key="name", title="memory"),
    Column(key="measured", title="measured", align="right"),
    Column(key="predicted", title="predicted", align="right"),
    Column(key="difference", title="difference", align="right"),
    Column(key="at_peak", title="at the peak", align="right"),
)
_PHASES = (
    Column(key="name", title="peak of"),
    Column(key="measured", title="measured", align="right"),
    Column(key="predicted", title="predicted", align="right"),
    Column(key="difference", title="difference", align="right"),
)
_TRAFFIC = (
    Column(key="axis", title="traffic on"),
    Column(key="collective", title="collective"),
    Column(key="calls", title="calls a step", align="right"),
    Column(key="bytes", title="bytes a step", align="right"),
    Column(key="difference", title="predicted", align="right"),
)


def measurement_page(job: Job, found: Sequence[Measured]) -> list[Block]:
    """One block of tables for each rank that was measured."""
    page: list[Block] = []
    for one in found:
        page += [*_rank_blocks(job, one), ""]
    return page[:-1]


def _rank_blocks(job: Job, one: Measured) -> list[Block]:
    return [
        f"rank {one.rank}, pipeline stage {one.stage} of {int(job.plan.pp)}: {_how(one)}",
        "",
        _table(_MEMORY, one.lines, "memory"),
        "",
        _table(_PHASES, one.lines, "phase"),
        "",
        traffic_table(one.lines),
    ]


def _how(one: Measured) -> str:
    """Which layers were run, and what that took."""
    layers = "+".join(str(n) for n in one.layers)
    layers += " layer" if one.layers == (1,) else " layers"
    spent = f"{one.cpu_s:.1f} s of CPU"
    if one.layers == one.layers_read:
        return f"{layers} on fake tensors, {spent}"
    run = "+".join(str(n) for n in one.layers_read)
    words = f"{layers} from runs of up to {run} on fake tensors, {spent}"
    if one.extension_error is None:
        return words
    return f"{words}; at a third depth within {100 * one.extension_error:.2g}%"


def _table(columns: tuple[Column, ...], lines: Sequence[Line], group: str) -> Table:
    rows = [
        Row(
            cells={
                "name": line.name,
                "measured": format_bytes(line.measured),
                "predicted": "" if line.predicted is None else format_bytes(line.predicted),
                "difference": _percent(line),
                "at_peak": "" if line.at_peak is None else format_bytes(line.at_peak),
            }
        )
        for line in lines
        if line.group == group
    ]
    return Table(columns=columns, rows=tuple(rows))


def traffic_table(lines: Sequence[Line]) -> Table:
    """Calls and bytes of every axis and collective, and whether they are the predicted ones."""
    names = dict.fromkeys(line.name for line in lines if line.group == "traffic")
    rows = []
    for name in names:
        calls, size = (line for line in lines if line.name == name and line.group == "traffic")
        axis, collective = name.split(".")
        rows.append(
            Row(
                cells={
                    "axis": axis,
                    "collective": collective.replace("_", "-"),
                    "calls": format_count(calls.measured),
                    "bytes": format_bytes(size.measured),
                    "difference": _exactly(calls, size),
                }
            )
        )
    return Table(columns=_TRAFFIC, rows=tuple(rows))


def _exactly(calls: Line, size: Line) -> str:
    """ "equal", or what was predicted."""
    if calls.is_equal and size.is_equal:
        return "equal"
    return f"{format_count(calls.predicted or 0)}, {format_bytes(size.predicted or 0)}"


def _percent(line: Line) -> str:
    """The difference as a signed percentage."""
    difference = line.difference
    return "" if difference is None else f"{100 * difference:+.1f}%"


def measurement_record(found: Sequence[Measured]) -> dict[str, Any]:
    """All ranks for JSON."""
    return {"ranks": [_record(one) for one in found]}


def _record(one: Measured) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "stage": one.stage,
        "layers": list(one.layers),
        "layers_read": list(one.layers_read),
        "extension_error": one.extension_error,
        "cpu_s": one.cpu_s,
        "lines": [
            {
                "group": line.group,
                "name": line.name,
                "unit": line.unit,
                "measured": line.measured,
                "predicted": line.predicted,
                "difference": line.difference,
                "at_peak": line.at_peak,
            }
            for line in one.lines
        ],
    }
