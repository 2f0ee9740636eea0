"""What the ranks of a job say together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.diagnose.across.axis_times import axis_times
from meshwright.diagnose.across.clock import clocks_of
from meshwright.diagnose.across.imbalance import imbalances, stage_compute_us, step_variation
from meshwright.diagnose.across.links import cells_of, links_of
from meshwright.diagnose.across.match import TOLERANCE_NS, grouped, matched, rematched
from meshwright.diagnose.across.meetings import meetings
from meshwright.diagnose.across.named import Named, named_groups
from meshwright.diagnose.across.noun import Across
from meshwright.diagnose.across.stragglers import stragglers_of
from meshwright.diagnose.across.table import rows_of
from meshwright.diagnose.across.waits import waits_of
from meshwright.diagnose.across.work import work_of
from meshwright.diagnose.ranks import hosts_of, numbers_of, rank_step_us
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.across.clock import Clocks
    from meshwright.diagnose.across.noun import Straggler
    from meshwright.diagnose.across.table import Doubles, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Longs
    from meshwright.plan.job import Job

MOST_TOLERANCE_NS = 1_000_000


def across(ranks: Sequence[Rank], *, job: Job | None = None) -> Across | None:
    """The job; None where fewer than two ranks have collectives.

    `job` is the plan that ran: it names axes, stages and links that traces do not tell.
    `what_if_us` stays empty: `path.replay.what_if` answers on what is returned here.
    """
    met, numbers = _in_order(ranks)
    if len(met) < 2:
        return None
    rows = rows_of(met, numbers)
    waits, clocks = _matched(rows, [r.meta.host for r in met])
    named = named_groups(met, rows, job=job)
    return Across(
        **_totals(rows, waits, met),
        **_clock_fields(rows, clocks, [r.meta.host for r in met]),
        **_structure(rows, waits, met, named, job),
        collectives=meetings(rows, waits, named.axes),
        group_axes=named.axes,
        ambiguous_groups=named.ambiguous,
        axes=axis_times(rows, waits, met, named.axes),
        left=_left(rows, waits, clocks),
    )


def matched_rows(ranks: Sequence[Rank]) -> tuple[Rows, Waits, Clocks] | None:
    """Single collectives and their waits; None where fewer than two ranks have any."""
    met, numbers = _in_order(ranks)
    if len(met) < 2:
        return None
    rows = rows_of(met, numbers)
    return rows, *_matched(rows, [r.meta.host for r in met])


def _in_order(ranks: Sequence[Rank]) -> tuple[list[Rank], list[int]]:
    """The ranks that have collectives, by number, and their numbers."""
    numbered = sorted(zip(numbers_of(ranks), ranks, strict=True), key=lambda pair: pair[0])
    met = [(n, r) for n, r in numbered if r.instances is not None and len(r.instances.signature)]
    return [r for _, r in met], [n for n, _ in met]


def _matched(rows: Rows, hosts: Sequence[str]) -> tuple[Waits, Clocks]:
    """Matched by order, clocks aligned, and matched again by time where order does not hold."""
    first = grouped(rows, matched(rows))
    clocks = clocks_of(rows, first, hosts)
    tolerance = max(TOLERANCE_NS, int(4 * (clocks.residual_ns or 0.0)))
    second = rematched(rows, first, clocks.shift_ns, tolerance_ns=min(tolerance, MOST_TOLERANCE_NS))
    return waits_of(rows, second.instance, clocks.shift_ns), clocks


def _totals(rows: Rows, waits: Waits, ranks: Sequence[Rank]) -> dict[str, Any]:
    """Sums by rank."""
    length = rows.end_ns - rows.start_ns
    total = np.bincount(rows.rank, weights=length, minlength=len(ranks))
    waited = np.bincount(rows.rank[waits.row], weights=waits.wait_ns, minlength=len(ranks))
    last = np.bincount(rows.rank[waits.row[waits.last]], minlength=len(ranks))
    return {
        "ranks": rows.ranks,
        "world_size": next((r.world_size for r in ranks if r.world_size), None),
        "nccl_total_us_by_rank": microseconds(total),
        "wait_us_by_rank": microseconds(waited),
        "wait_share_by_rank": tuple(np.round(waited / np.maximum(total, 1.0), 4).tolist()),
        "times_last": tuple(last.tolist()),
        "step_us_by_rank": tuple(map(rank_step_us, ranks)),
        "compute_us_by_rank": tuple(map(compute_us, ranks)),
        "transfer_us_sum_of_min": float(waits.transfer_ns.sum()) / 1000.0,
        "matched": len(waits),
        "unmatched": len(rows) - len(waits.row),
        "partial": int(np.count_nonzero(~waits.complete & ~_nameless(rows)[waits.lane])),
    }


def _nameless(rows: Rows) -> Any:
    """Lanes of which nobody tells how many members they have."""
    return np.array([lane.pair is None and lane.size < 0 for lane in rows.lanes], bool)


def _clock_fields(rows: Rows, clocks: Clocks, hosts: Sequence[str]) -> dict[str, Any]:
    """How clocks were aligned; ranks of one host have one, whatever their collectives end like."""
    one = not clocks.shifted and len(set(hosts)) == 1 and hosts[0] != ""
    residual = None if one or clocks.residual_ns is None else clocks.residual_ns / 1000.0
    alone = [n for n, c in zip(rows.ranks, clocks.component, strict=True) if c]
    return {
        "clock_shift_us": microseconds(clocks.shift_ns),
        "clock_residual_us": residual,
        "unaligned": tuple(alone) if clocks.doubtful else (),
    }


def _structure(
    rows: Rows, waits: Waits, ranks: Sequence[Rank], named: Named, job: Job | None
) -> dict[str, Any]:
    """Stragglers, imbalance, links."""
    work = work_of(ranks, rows, waits)
    compute = tuple(map(compute_us, ranks))
    found = stragglers_of(rows, waits, work)
    hosts = hosts_of(rows.ranks, ranks)
    return {
        "stragglers": found.stragglers,
        "passed_on": found.passed_on,
        "straggler_rotates": found.rotates,
        "straggler_rank": _straggler_rank(rows, waits, found.stragglers),
        "imbalance": imbalances(
            compute, work, stage=named.stage, expert_groups=named.expert_groups
        ),
        "stage_compute_us": stage_compute_us(compute, named.stage),
        "stage_by_rank": tuple(named.stage.tolist()),
        "step_variation": step_variation(work),
        "links": links_of(cells_of(rows, waits), axes=named.axes, hosts=hosts, job=job),
    }


def _straggler_rank(rows: Rows, waits: Waits, stragglers: Sequence[Straggler]) -> int | None:
    """The rank that is last most often, unless most waiting is for another at its root."""
    if not stragglers:
        return None
    if stragglers[0].share > 0.5:
        return stragglers[0].rank
    last = np.bincount(rows.rank[waits.row[waits.last]], minlength=len(rows.ranks))
    return rows.ranks[int(np.argmax(last))]


def _left(rows: Rows, waits: Waits, clocks: Clocks) -> tuple[Left, ...]:
    """Collectives that stand alone, and ranks whose clock nothing ties to the others'."""
    alone = np.ones(len(rows), bool)
    alone[waits.row] = False
    alone &= np.array([lane.size != 1 for lane in rows.lanes], bool)[rows.lane]
    found = []
    if alone.any():
        length = float((rows.end_ns - rows.start_ns)[alone].sum()) / 1000.0
        reason = "no other rank's trace has the same collective: their waits are not known"
        found.append(
            Left(
                what="collective kernels without a counterpart",
                count=int(np.count_nonzero(alone)),
                time_us=length,
                reason=reason,
            )
        )
    if clocks.doubtful and clocks.component.any():
        count = int(np.count_nonzero(clocks.component))
        reason = "they share no collective with the others: what they wait for is not known"
        found.append(
            Left(what="ranks whose clock is not aligned", count=count, time_us=0.0, reason=reason)
        )
    return tuple(found)


def microseconds(nanoseconds: Longs | Doubles) -> tuple[float, ...]:
    """The same in microseconds."""
    return tuple((nanoseconds / 1000.0).tolist())


def compute_us(rank: Rank) -> float:
    """Computation of one step."""
    window = rank.step_window or rank.gpu_span
    return window.compute_us / max(window.n_steps, 1) if window else 0.0


__all__ = ["across"]
