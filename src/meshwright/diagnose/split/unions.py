"""How long the device spent on each kind of work in a window, overlaps counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.rank import Unions
from meshwright.diagnose.split.intervals import within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs


def unions_of(
    work: Work, start: Longs, end: Longs, *, origin_ns: int, names: Sequence[str] = ()
) -> tuple[Unions, ...]:
    """The split of each window [start, end), in the order given.

    `names` are the windows' (none: all nameless); starts are told since the file's own epoch.
    """
    columns = [
        within(spans, start, end)
        for spans in (work.compute, work.communication, work.memory, work.overlap)
    ]
    active, busy = within(work.active, start, end), within(work.busy, start, end)
    told = names or [""] * len(start)
    rows = zip(told, start, end, *columns, active, busy, strict=True)
    return tuple(_unions(name, origin_ns, *map(int, row)) for name, *row in rows)


def _unions(
    name: str,
    origin: int,
    start: int,
    end: int,
    compute: int,
    comm: int,
    memory: int,
    overlap: int,
    active: int,
    busy: int,
) -> Unions:
    window = end - start
    return Unions(
        name=name,
        start_us=(origin + start) / 1000,
        window_us=window / 1000,
        compute_us=compute / 1000,
        comm_us=comm / 1000,
        memory_us=memory / 1000,
        overlap_comm_compute_us=overlap / 1000,
        exposed_comm_us=(comm - overlap) / 1000,
        exposed_memory_us=(busy - active) / 1000,
        busy_us=busy / 1000,
        idle_us=(window - busy) / 1000,
        overlap_pct_of_comm=percent(overlap, comm) if comm else None,
        compute_pct=percent(compute, window),
        exposed_comm_pct=percent(comm - overlap, window),
        exposed_memory_pct=percent(busy - active, window),
        idle_pct=percent(window - busy, window),
    )


def percent(part: float, whole: float) -> float:
    """A part in percent of a whole; 0 of nothing."""
    return float(100 * part / whole) if whole else 0.0


def one_window(start: int, end: int) -> tuple[Longs, Longs]:
    """Columns of one window."""
    return np.array([start], dtype=np.int64), np.array([end], dtype=np.int64)
