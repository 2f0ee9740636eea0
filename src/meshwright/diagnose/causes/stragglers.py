"""Waits of ranks for each other: for whom, and how much of a step they are."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.diagnose.causes.case import axis_of, steps_of

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case

MUCH_WAITING = 0.05  # of the step, for one reason
MOSTLY = 0.35  # of all waiting, for the ranks of one reason: among eight equal ranks each has 0.125
UNEQUAL = 1.5  # times its equal share
PIPELINE = ("pp", "embedding", "tp_pp", "ep_pp")  # axes on which stages wait for each other
APART = 1.1  # times what the others of its stage compute: such a rank is slow itself
NAMED = 0.1  # of all waiting: a rank with less is not named


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Ranks that others wait for, for one reason; `us` is what of a step the others wait."""

    ranks: tuple[int, ...]
    us: float
    share: float  # of all waiting
    over_median: float  # their own work between collectives over that of the others


def wait_us(case: Case) -> float:
    """What a rank waits for others in collectives of one step, mean over ranks; 0 unknown.

    Never more than the communication that stands exposed: a wait beside compute costs nothing.
    Waits of pipeline stages for each other are no part of it, see `stage_wait_us`.
    """
    across = case.across
    if across is None:
        return 0.0
    told = [a for a in across.axes if a.wait_us is not None]
    if told:
        mean = sum(
            min(a.wait_us or 0.0, a.exposed_us)
            for a in told
            if axis_of(case, a.axis) not in PIPELINE
        )
    else:
        steps = dict(zip(case.numbers, map(steps_of, case.ranks), strict=True))
        waits = zip(across.ranks, across.wait_us_by_rank, strict=True)
        mean = fmean(us / steps.get(rank, 1) for rank, us in waits) if across.ranks else 0.0
    return min(mean, case.part_us("exposed_comm"))


def stage_wait_us(case: Case) -> float:
    """What a pipeline stage waits for its neighbours in one step, mean over ranks; 0 unknown."""
    axes = case.across.axes if case.across else ()
    waits = sum(a.exposed_us for a in axes if axis_of(case, a.axis) in PIPELINE)
    return min(waits, case.part_us("exposed_comm"))


def waited_by_stages_us(case: Case) -> float:
    """What of `stage_wait_us` is known to be waiting, not transfer."""
    axes = case.across.axes if case.across else ()
    return sum(
        min(a.wait_us or 0.0, a.exposed_us) for a in axes if axis_of(case, a.axis) in PIPELINE
    )


def mostly(ranks: int, of: int = 1) -> float:
    """The share of all waiting that makes some of the ranks stand out: among two, half is none."""
    return min(0.9, max(MOSTLY, UNEQUAL * of / max(1, ranks)))


def waited_for(case: Case, *reasons: str) -> Waited | None:
    """The ranks that hold the others up for one of these reasons; None where they do not."""
    across = case.across
    if across is None or across.straggler_rotates:
        return None
    found = [s for s in across.stragglers if s.because in reasons and s.share > 0]
    share = min(1.0, sum(s.share for s in found))
    us = share * wait_us(case)
    if share < mostly(len(across.ranks), len(found)) or case.of_step(us) < MUCH_WAITING:
        return None
    worst = [s for s in found if s.share >= NAMED] or found
    return Waited(
        ranks=tuple(sorted(s.rank for s in worst)),
        us=us,
        share=share,
        over_median=max(s.over_median for s in worst),
    )


def is_of_its_stage(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether these compute as long as the others of their pipeline stage: then it is the stage."""
    across = case.across
    if across is None or len(set(across.stage_by_rank)) < 2:
        return False
    told = zip(across.ranks, across.stage_by_rank, across.compute_us_by_rank, strict=True)
    by_stage: dict[int, dict[int, float]] = {}
    for rank, stage, us in told:
        by_stage.setdefault(stage, {})[rank] = us
    return all(
        own[rank]
        < APART * median(us for other, us in own.items() if other != rank or len(own) == 1)
        for own in by_stage.values()
        for rank in ranks
        if rank in own
    )
