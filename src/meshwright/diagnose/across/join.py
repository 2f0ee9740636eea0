"""What the ranks of a job say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.across.clock import clocks_of
from meshwright.diagnose.across.match import TOLERANCE_NS, grouped, matched, rematched
from meshwright.diagnose.across.meetings import meetings
from meshwright.diagnose.across.noun import Across
from meshwright.diagnose.across.table import rows_of
from meshwright.diagnose.across.waits import waits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.across.table import Doubles, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Longs
    from meshwright.plan.job import Job


def across(ranks: Sequence[Rank], *, job: Job | None = None) -> Across | None:
    """The job; None where fewer than two ranks have collectives.

    `job` is the plan that ran: it names axes, stages and links that traces do not tell.
    """
    met = [r for r in ranks if r.instances is not None and len(r.instances.signature)]
    if len(met) < 2:
        return None
    numbers = numbers_of(met)
    order = sorted(range(len(met)), key=numbers.__getitem__)
    met, numbers = [met[i] for i in order], [numbers[i] for i in order]
    rows = rows_of(met, numbers)
    first = grouped(rows, matched(rows))
    clocks = clocks_of(rows, first, [r.meta.host for r in met])
    tolerance = max(TOLERANCE_NS, int(4 * (clocks.residual_ns or 0.0)))
    second = rematched(rows, first, clocks.shift_ns, tolerance_ns=min(tolerance, 1_000_000))
    waits = waits_of(rows, second.instance, clocks.shift_ns)
    total = np.bincount(rows.rank, weights=rows.end_ns - rows.start_ns, minlength=len(met))
    waited = by_rank(rows, waits.row, waits.wait_ns)
    times_last = np.bincount(rows.rank[waits.row[waits.last]], minlength=len(met))
    return Across(
        ranks=tuple(numbers),
        world_size=next((r.world_size for r in met if r.world_size), None),
        nccl_total_us_by_rank=microseconds(total),
        wait_us_by_rank=microseconds(waited),
        wait_share_by_rank=tuple(np.round(waited / np.maximum(total, 1.0), 4).tolist()),
        times_last=tuple(times_last.tolist()),
        step_us_by_rank=tuple(map(step_us, met)),
        compute_us_by_rank=tuple(map(compute_us, met)),
        transfer_us_sum_of_min=float(waits.transfer_ns.sum()) / 1000.0,
        straggler_rank=_most_often_last(numbers, times_last, waits),
        stragglers=(),
        collectives=meetings(rows, waits, {}),
        matched=len(waits),
        unmatched=len(rows) - len(waits.row),
        clock_shift_us=microseconds(clocks.shift_ns),
        clock_residual_us=None if clocks.residual_ns is None else clocks.residual_ns / 1000.0,
    )


def numbers_of(ranks: Sequence[Rank]) -> list[int]:
    """The rank of each trace; where some do not say, or two say the same, their order."""
    said = [r.rank for r in ranks]
    known = [n for n in said if n is not None]
    if len(set(known)) == len(ranks):
        return known
    return list(range(len(ranks)))


def by_rank(rows: Rows, row: Longs, value: Longs) -> Doubles:
    """Sums of a column by rank."""
    found = np.bincount(rows.rank[row], weights=value, minlength=len(rows.ranks))
    return found.astype(float)


def microseconds(nanoseconds: Longs | Doubles) -> tuple[float, ...]:
    """The same in microseconds."""
    return tuple((nanoseconds / 1000.0).tolist())


def step_us(rank: Rank) -> float:
    """A step as the device lived it, else as the host did, else the whole trace."""
    for value in (rank.device_step_time_us_median, rank.step_time_us_median):
        if value is not None:
            return value
    return rank.gpu_span.window_us if rank.gpu_span else 0.0


def compute_us(rank: Rank) -> float:
    """Computation of one step."""
    window = rank.step_window or rank.gpu_span
    return window.compute_us / max(window.n_steps, 1) if window else 0.0


def _most_often_last(numbers: Sequence[int], times_last: Longs, waits: Waits) -> int | None:
    return numbers[int(np.argmax(times_last))] if len(waits) else None


__all__ = ["across"]
