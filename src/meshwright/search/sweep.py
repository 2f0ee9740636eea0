"""Going through the space: rules first, then cost in blocks, keeping what matters.

A block is some rows of mesh and batch (down) times all options (across): a plan whose fields are
(rows, 1) or (1, options) arrays, so that what depends on the mesh alone is computed once a row and
what depends on both is a full block. Everything kept is deterministic and does not depend on the
block size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.cost.predict import evaluate
from meshwright.rules.rule import as_numpy, pruning_rules
from meshwright.search.space import BATCH_FIELDS, MESH_FIELDS, batch_choices, join, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan
    from meshwright.rules.rule import Rule
    from meshwright.search.space import Space, Table

BLOCK = 16384  # plans costed at a time: their columns stay in the second-level cache
MEMORY_CODE = "memory"  # census key of plans that are legal and do not fit


@dataclass(slots=True, kw_only=True)
class Kept:
    """Plans worth keeping, best first: columns of the fields and of the costs."""

    fields: Table
    step_s: NDArray[np.float64]
    peak_bytes: NDArray[np.float64]
    upper_bytes: NDArray[np.float64]

    def __len__(self) -> int:
        """Number of plans kept."""
        return len(self.step_s)


@dataclass(slots=True, kw_only=True)
class Sweep:
    """The outcome of one pass over the space.

    `rejected` counts candidates by the first rule that refused them, and under "memory" those that
    would not fit. `best` are feasible plans by the objective, `frontier` the Pareto front of step
    time and memory, `misses` the legal plans closest to fitting.
    """

    candidates: int = 0
    costed: int = 0
    feasible: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    best: Kept | None = None
    frontier: Kept | None = None
    misses: Kept | None = None


def sweep(
    job: Job,
    space: Space,
    *,
    limit_bytes: float,
    objective: str = "throughput",
    keep: int = 256,
    calibration: Calibration | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Cost every legal plan of the space and keep the best.

    `job` carries model, cluster, workload and stack; its plan is ignored but for the space's base.
    `limit_bytes` is the memory a plan's upper bound may take on a GPU. `progress` is called with
    the mesh rows done and their number.
    """
    result = Sweep()
    rules = pruning_rules()
    mesh_rules, batch_rules, option_rules = _by_level(rules)
    batch = batch_choices(space.model, space.workload, space.settings)
    multiple = len(batch[BATCH_FIELDS[0]]) * space.num_options
    meshes = space.mesh
    alive = _legal(job, space, meshes, mesh_rules, result.rejected, multiple)
    result.candidates = len(alive) * multiple
    meshes = take(meshes, np.flatnonzero(alive))
    count = len(meshes["tp"])
    for done, rows in enumerate(_slices(count, max(1, BLOCK * 4 // max(multiple, 1)))):
        joined = join(take(meshes, rows), batch)
        result.candidates -= (len(rows) * len(batch[BATCH_FIELDS[0]]) - len(joined["tp"])) * (
            space.num_options
        )
        legal = _legal(job, space, joined, batch_rules, result.rejected, space.num_options)
        joined = take(joined, np.flatnonzero(legal))
        for block in _slices(len(joined["tp"]), max(1, BLOCK // space.num_options)):
            _cost_block(
                job,
                space,
                take(joined, block),
                option_rules,
                result,
                limit_bytes=limit_bytes,
                objective=objective,
                keep=keep,
                calibration=calibration,
            )
        if progress is not None:
            progress(min(int(rows[-1]) + 1, count), count)
        del done
    return result


def _by_level(rules: Sequence[Rule]) -> tuple[list[Rule], list[Rule], list[Rule]]:
    """Rules by the first level that has all they read; fields the search never varies count as none."""
    mesh, batch, options = [], [], []
    varied_later = set(BATCH_FIELDS)
    for rule in rules:
        reads = set(rule.reads)
        if reads <= set(MESH_FIELDS):
            mesh.append(rule)
        elif reads <= set(MESH_FIELDS) | varied_later:
            batch.append(rule)
        else:
            options.append(rule)
    return mesh, batch, options


def _slices(count: int, size: int) -> Iterator[NDArray[np.int64]]:
    """Row numbers 0..count in runs of `size`."""
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))


def _legal(
    job: Job, space: Space, table: Table, rules: Sequence[Rule], rejected: Counter[str], weight: int
) -> NDArray[np.bool_]:
    """Which rows no rule refuses; the refused ones are counted, each row for `weight` candidates."""
    rows = len(next(iter(table.values())))
    alive = np.ones(rows, dtype=bool)
    if not rows:
        return alive
    checked = as_numpy(job.with_plan(space.settings.base.replace(**table)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for rule in rules:
            fires = np.asarray(rule.condition(checked), dtype=bool) & alive
            if fires.any():
                rejected[rule.code] += int(np.count_nonzero(fires)) * weight
                alive &= ~fires
    return alive


def block_plan(space: Space, table: Table) -> Plan:
    """Rows of mesh and batch down, all options across."""
    down = {name: column[:, None] for name, column in table.items()}
    across = {name: column[None, :] for name, column in space.options.items()}
    return space.settings.base.replace(**down, **across)


def _cost_block(
    job: Job,
    space: Space,
    table: Table,
    rules: Sequence[Rule],
    result: Sweep,
    *,
    limit_bytes: float,
    objective: str,
    keep: int,
    calibration: Calibration | None,
) -> None:
    """Apply the remaining rules to one block, cost it, and merge what it has into the result."""
    shape = (len(table["tp"]), space.num_options)
    block = job.with_plan(block_plan(space, table))
    alive = np.ones(shape, dtype=bool)
    checked = as_numpy(block)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for rule in rules:
            fires = np.asarray(rule.condition(checked), dtype=bool) & alive
            if fires.any():
                result.rejected[rule.code] += int(np.count_nonzero(fires))
                alive &= ~fires
    cost = evaluate(block, calibration)
    step = np.broadcast_to(cost.step_s, shape)
    peak = np.broadcast_to(cost.peak_bytes, shape)
    upper = np.broadcast_to(cost.upper_bytes, shape)
    fits = upper <= limit_bytes
    result.costed += int(np.count_nonzero(alive))
    result.rejected[MEMORY_CODE] += int(np.count_nonzero(alive & ~fits))
    good = alive & fits
    result.feasible += int(np.count_nonzero(good))
    score = {"memory": peak}.get(objective, step)
    costs = (step, peak, upper)
    result.best = _merge(
        result.best, _pick(space, table, good, score, costs, keep), objective, keep
    )
    front = good & _pareto_candidates(step, peak, good)
    chosen = _pick(space, table, front, step, costs, keep)
    result.frontier = _pareto(_merge(result.frontier, chosen, "throughput", 10 * keep))
    missed = _pick(space, table, alive & ~fits, upper, costs, 16)
    result.misses = _merge(result.misses, missed, "memory", 16)


def _pick(
    space: Space,
    table: Table,
    good: NDArray[np.bool_],
    score: NDArray[np.float64],
    costs: tuple[NDArray[np.float64], ...],
    keep: int,
) -> Kept | None:
    """The `keep` best plans of a block among the good ones, as flat columns."""
    places = np.flatnonzero(good.ravel())
    if not places.size:
        return None
    values = np.ravel(score)[places]
    if places.size > keep:
        cut = np.partition(values, keep - 1)[keep - 1]
        places = places[values <= cut]
    row, column = np.divmod(places, space.num_options)
    fields = {name: values[row] for name, values in table.items()}
    fields |= {name: values[column] for name, values in space.options.items()}
    step, peak, upper = (np.ravel(cost)[places] for cost in costs)
    return Kept(fields=fields, step_s=step, peak_bytes=peak, upper_bytes=upper)


def _merge(ours: Kept | None, theirs: Kept | None, objective: str, keep: int) -> Kept | None:
    """The best `keep` of two sets, ties broken by the plan's fields so that order never matters."""
    if ours is None or theirs is None:
        merged = theirs if ours is None else ours
        if merged is None:
            return None
    else:
        merged = Kept(
            fields={n: np.concatenate([ours.fields[n], theirs.fields[n]]) for n in ours.fields},
            step_s=np.concatenate([ours.step_s, theirs.step_s]),
            peak_bytes=np.concatenate([ours.peak_bytes, theirs.peak_bytes]),
            upper_bytes=np.concatenate([ours.upper_bytes, theirs.upper_bytes]),
        )
    first, second = merged.step_s, merged.peak_bytes
    if objective == "memory":
        first, second = merged.peak_bytes, merged.step_s
    order = np.lexsort((*merged.fields.values(), second, first))[:keep]
    return _rows_of(merged, order)


def _rows_of(kept: Kept, rows: NDArray[Any]) -> Kept:
    """Some rows of a kept set."""
    return Kept(
        fields={name: column[rows] for name, column in kept.fields.items()},
        step_s=kept.step_s[rows],
        peak_bytes=kept.peak_bytes[rows],
        upper_bytes=kept.upper_bytes[rows],
    )


def _pareto_candidates(
    step: NDArray[np.float64], peak: NDArray[np.float64], good: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Plans of a block that no other plan of the block beats in both time and memory."""
    front = np.zeros(good.shape, dtype=bool)
    places = np.flatnonzero(good.ravel())
    if not places.size:
        return front
    time, memory = step.ravel()[places], peak.ravel()[places]
    order = np.lexsort((memory, time))
    running = np.minimum.accumulate(memory[order])
    better = np.concatenate([[True], memory[order][1:] < running[:-1]])
    front.ravel()[places[order[better]]] = True
    return front


def _pareto(kept: Kept | None) -> Kept | None:
    """The kept plans on the Pareto front of step time and peak memory, fastest first."""
    if kept is None or not len(kept):
        return kept
    running = np.minimum.accumulate(kept.peak_bytes)
    better = np.concatenate([[True], kept.peak_bytes[1:] < running[:-1]])
    return _rows_of(kept, np.flatnonzero(better))
