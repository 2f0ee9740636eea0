"""When nothing fits: the nearest plans, the constraint to relax, the GPUs that would do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.search.result import GIB, Miss, Relaxation
from meshwright.search.space import space
from meshwright.search.sweep import sweep

if TYPE_CHECKING:
    from meshwright.cost.calibration import Calibration
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan
    from meshwright.search.space import Options
    from meshwright.search.sweep import Kept, Sweep

MAX_GROWTH = 4096  # times the GPUs asked for, before giving up on a minimum


def misses(job: Job, outcome: Sweep, settings: Options, limit_bytes: float) -> tuple[Miss, ...]:
    """The legal plans that come closest to fitting, nearest first."""
    kept = outcome.misses
    if kept is None:
        return ()
    found = []
    for index in range(min(len(kept), 3)):
        over = float(kept.upper_bytes[index]) - limit_bytes
        found.append(
            Miss(
                job=job.with_plan(_plan_at(settings.base, kept, index)),
                upper_bytes=float(kept.upper_bytes[index]),
                over_bytes=over,
                step_time_s=float(kept.step_s[index]),
                remedy=f"{over / GIB:.1f} GiB more memory per GPU would admit it",
            )
        )
    return tuple(found)


def _plan_at(base: Plan, kept: Kept, index: int) -> Plan:
    """Plan number `index` of a kept set, as scalars."""
    return base.replace(**{name: column[index].item() for name, column in kept.fields.items()})


def relaxations(
    job: Job, settings: Options, *, limit_bytes: float, calibration: Calibration
) -> tuple[Relaxation, ...]:
    """Single pins or bans whose removal admits plans, the most admitting first.

    When no single one does, all pins together are tried, so that the smallest set is found when it
    has one member and a sufficient set is named otherwise.
    """
    trials = [(f"pin {n}", _without(settings, pin=n)) for n in settings.pins]
    trials += [(f"ban on {n}", _without(settings, ban=n)) for n in settings.bans]
    found = [_trial(job, name, s, limit_bytes, calibration) for name, s in trials]
    admitted = sorted((r for r in found if r.admits), key=lambda r: -r.admits)
    if not admitted and len(trials) > 1:
        free = replace(settings, pins={}, bans={})
        names = " and ".join(name for name, _ in trials)
        every = _trial(job, names, free, limit_bytes, calibration)
        admitted = [every] if every.admits else []
    return tuple(admitted)


def _without(settings: Options, *, pin: str = "", ban: str = "") -> Options:
    """The settings with one pin or ban dropped."""
    pins = {n: v for n, v in settings.pins.items() if n != pin}
    bans = {n: v for n, v in settings.bans.items() if n != ban}
    return replace(settings, pins=pins, bans=bans)


def _trial(
    job: Job, name: str, settings: Options, limit_bytes: float, calibration: Calibration
) -> Relaxation:
    """How many plans fit under the relaxed settings."""
    outcome = sweep(
        job,
        space(job.model, job.cluster, job.workload, settings),
        limit_bytes=limit_bytes,
        keep=1,
        calibration=calibration,
    )
    example = _plan_at(settings.base, outcome.best, 0) if outcome.best is not None else None
    return Relaxation(constraint=name, admits=outcome.feasible, example=example)


def minimum_gpus(
    job: Job, settings: Options, memory_share: float, *, calibration: Calibration
) -> int | None:
    """The smallest number of nodes' worth of GPUs, by doubling and bisection, on which a plan fits.

    None when even many times the GPUs do not help (a pin is in the way).
    """
    per_node = job.cluster.gpus_per_node

    def fits(nodes: int) -> bool:
        cluster = replace(job.cluster, num_gpus=nodes * per_node)
        outcome = sweep(
            replace(job, cluster=cluster),
            space(job.model, cluster, job.workload, settings),
            limit_bytes=cluster.gpu.memory_bytes * memory_share,
            keep=1,
            calibration=calibration,
        )
        return outcome.feasible > 0

    low, high = job.cluster.num_nodes, job.cluster.num_nodes * 2
    while not fits(high):
        low, high = high, high * 2
        if high > job.cluster.num_nodes * MAX_GROWTH:
            return None
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high * per_node
