"""Going through the space: rules first, then cost in blocks, keeping what matters.

A block is some rows of a group of legal plans with all its options: a plan whose fields broadcast
from (rows,), (inner, 1) and (outer, 1, 1), so that what depends on the mesh alone is computed once
a row, what a layer costs once a row and inner option, and only the sums are as large as the block.
What is kept depends neither on the size nor on the order of the blocks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.calibration import default_calibration
from meshwright.cost.memory import memory_stack
from meshwright.cost.predict import evaluate
from meshwright.cost.tables import tables
from meshwright.rules.compute.memory import HOST_SHARE
from meshwright.rules.rule import as_numpy
from meshwright.search.kept import DETAILS, HIDDEN, Kept, best_of, joined, pareto, threshold, weed
from meshwright.search.legality import asked, columns, groups, levels, refused
from meshwright.search.menu import sensible
from meshwright.search.space import length, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.cost.predict import Evaluation
    from meshwright.plan.job import Job
    from meshwright.search.legality import Group, Levels
    from meshwright.search.space import Space, Table

BLOCK = 1 << 16  # plans costed at a time: many enough for NumPy, few enough for the caches
SLAB = 1 << 20  # pairs of mesh and batch rows that are checked and grouped at a time
MEMORY_CODE = "memory"  # census key of plans that are legal and do not fit a GPU
HOST_CODE = "CMP209"  # the rule that refuses what does not fit a host


@dataclass(slots=True, kw_only=True)
class Sweep:
    """The outcome of one pass over the space.

    `rejected` counts candidates by the first rule that refused them, and under "memory" those that
    would not fit; with the feasible ones they are all `candidates`. `best` are feasible plans by
    the objective that differ in more than `kept.DETAILS`, `variants` those that differ in more than
    `kept.HIDDEN`; `frontier` is the Pareto front of step time and peak, `misses` that of step time
    and required memory over the legal plans that do not fit. `interrupted` is True when the pass
    was stopped before its end.
    """

    candidates: int = 0
    costed: int = 0
    feasible: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    best: Kept | None = None
    variants: Kept | None = None
    frontier: Kept | None = None
    misses: Kept | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a sweep looks for: the memory a plan may take, the objective, how many plans to keep.

    With `any_fits` the pass ends at the first block that has a feasible plan.
    """

    limit_bytes: float
    objective: str = "throughput"
    keep: int = 64
    any_fits: bool = False


def sweep(
    job: Job,
    space: Space,
    *,
    aim: Aim,
    calibration: Calibration | None = None,
    progress: Callable[[int, int], None] | None = None,
    block: int = BLOCK,
) -> Sweep:
    """Cost every legal plan of the space and keep the best.

    `job` carries model, cluster, workload and stack; its plan is ignored but for the space's base.
    `progress` is called with the rows of the mesh done and their number. A KeyboardInterrupt ends
    the pass: what was found until then is returned.
    """
    result = Sweep()
    calibration = calibration or default_calibration()
    steps = _steps(job, space, result, aim=aim, calibration=calibration, block=block)
    try:
        for done in steps:
            if progress is not None:
                progress(done, length(space.mesh))
            if aim.any_fits and result.feasible:
                break
    except KeyboardInterrupt:
        result.interrupted = True
    result.candidates = result.feasible + result.rejected.total()
    return result


def _steps(
    job: Job, space: Space, result: Sweep, *, aim: Aim, calibration: Calibration, block: int
) -> Iterator[int]:
    """Fills the result block by block; yields how many rows of the mesh are done."""
    rules = levels(space)
    total = length(space.mesh)
    size = max(1, SLAB // max(length(space.batch), 1))
    for start in range(0, total, size):
        stop = min(start + size, total)
        rows = _legal_rows(job, space, slice(start, stop), rules, result.rejected)
        for share in _slab(
            job, space, rows, rules, result, aim=aim, calibration=calibration, block=block
        ):
            yield start + int((stop - start) * share)
        yield stop


def _legal_rows(job: Job, space: Space, part: slice, rules: Levels, census: Counter[str]) -> Table:
    """Rows of mesh and batch that no rule refuses, from a part of the mesh."""
    base, options = space.settings.base, space.num_options
    mesh = take(space.mesh, part)
    fits = sensible(
        mesh, space.batch, layers=space.model.num_hidden_layers, settings=space.settings
    )
    alive = np.ones(length(mesh), dtype=bool)
    weight = fits.sum(axis=1) * options
    alive = refused(asked(job, base, mesh), rules.mesh, alive, census=census, weight=weight)
    left, right = np.nonzero(fits & alive[:, None])
    rows = take(mesh, left) | take(space.batch, right)
    alive = np.ones(len(left), dtype=bool)
    alive = refused(asked(job, base, rows), rules.batch, alive, census=census, weight=options)
    return take(rows, np.flatnonzero(alive))


def _slab(
    job: Job,
    space: Space,
    rows: Table,
    rules: Levels,
    result: Sweep,
    *,
    aim: Aim,
    calibration: Calibration,
    block: int,
) -> Iterator[float]:
    """Cost the legal plans of some rows block by block and merge what is worth keeping.

    Yields the share of them that is done.
    """
    base = space.settings.base
    found = groups(job, space, rows, rules, result.rejected)
    if not found:
        return
    plans = columns(base, rows, space.inner)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shared = tables(job.with_plan(plans), calibration, memory_stack(job.stack))
    plans_done, plans_of_slab = 0, sum(prod(group.shape) for group in found)
    for part in _blocks(found, block):
        one = job.with_plan(part.plan(base))
        cost = evaluate(one, calibration, shared=shared.of(part.row_at, part.inner_at))
        alive = np.ones(part.shape, dtype=bool)
        if rules.whole:
            alive = refused(as_numpy(one), rules.whole, alive, census=result.rejected, weight=1)
        _merge(job, part, cost, alive, result, aim=aim)
        plans_done += prod(part.shape)
        yield plans_done / plans_of_slab


def _blocks(found: list[Group], block: int) -> Iterator[Group]:
    """The groups in runs of rows of about `block` plans."""
    for group in found:
        outer, inner, count = group.shape
        size = max(1, block // (inner * outer))
        for start in range(0, count, size):
            yield group.part(slice(start, start + size))


def _merge(
    job: Job, part: Group, cost: Evaluation, alive: NDArray[np.bool_], result: Sweep, *, aim: Aim
) -> None:
    """Count one block's plans and keep the best, the front, and the nearest misses."""
    step, peak, upper = (
        np.broadcast_to(c, part.shape) for c in (cost.step_s, cost.peak_bytes, cost.upper_bytes)
    )
    costs = (step, peak, upper)
    result.costed += int(np.count_nonzero(alive))
    alive = alive & _host_fits(job, part, cost, result)
    good = alive & (upper <= aim.limit_bytes)
    found = int(np.count_nonzero(good))
    missed = int(np.count_nonzero(alive)) - found
    result.feasible += found
    if missed:
        result.rejected[MEMORY_CODE] += missed
        if result.frontier is None:
            worthwhile = weed(result.misses, step, upper, memory="upper_bytes")
        else:  # a slower plan would not win if it did fit
            worthwhile = step < result.frontier.step_s[0]
        near = _pick(part, alive & ~good & worthwhile, costs)
        if near is not None:
            result.misses = pareto(joined(result.misses, near), memory="upper_bytes")
    if not found:
        return
    score = upper if aim.objective == "memory" else step
    aims = {"best": DETAILS, "variants": HIDDEN}
    worst = max(threshold(getattr(result, n), aim.objective, aim.keep) for n in aims)
    chosen = _pick(part, good & (score <= worst), costs)
    for name, hidden in aims.items() if chosen is not None else ():
        both = joined(getattr(result, name), chosen)
        setattr(result, name, best_of(both, aim.objective, aim.keep, hidden=hidden))
    front = _pick(part, good & weed(result.frontier, step, peak), costs)
    if front is not None:
        result.frontier = pareto(joined(result.frontier, front))


def _host_fits(job: Job, part: Group, cost: Evaluation, result: Sweep) -> Any:
    """Where the host holds what is offloaded to it; the rest is counted under its rule."""
    plan = part.plan(job.plan)
    offloads = (plan.offload_optimizer > 0) | (plan.offload_activations > 0)
    offloads = offloads | np.asarray(plan.offload_params)
    if not np.any(offloads):
        return True
    over = offloads & (cost.host_bytes > HOST_SHARE * job.cluster.host.memory_bytes)
    if not np.any(over):
        return True
    over = np.broadcast_to(over, part.shape)
    result.rejected[HOST_CODE] += int(np.count_nonzero(over))
    return ~over


def _pick(
    part: Group, good: NDArray[np.bool_], costs: tuple[NDArray[np.float64], ...]
) -> Kept | None:
    """The good plans of a block as flat columns."""
    chosen = np.flatnonzero(good)
    if not chosen.size:
        return None
    places = np.unravel_index(chosen, part.shape)
    fields: Table = {}
    for table, place in zip((part.outer, part.inner, part.rows), places, strict=True):
        fields |= {name: column[place] for name, column in table.items()}
    step, peak, upper = (cost[places] for cost in costs)
    return Kept(fields=fields, step_s=step, peak_bytes=peak, upper_bytes=upper)
