"""Which plans of the space the rules admit, found without multiplying the space out.

A rule is asked once for each combination of the fields it reads: of the mesh, of mesh and batch,
of those with the inner or with the outer options. Rows with the same answers form a `Group`, whose
plans (its rows times its inner times its outer options) are all legal.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.plan.distinct import distinct
from meshwright.plan.plan import Recompute
from meshwright.plan.stages import chunks_per_rank
from meshwright.rules.rule import as_numpy, pruning_rules
from meshwright.search.menu import INNER_FIELDS, OUTER_FIELDS
from meshwright.search.space import MESH_FIELDS, length, take

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan
    from meshwright.rules.rule import Rule
    from meshwright.search.space import Space, Table

CPU = "cpu"  # generation of a machine that computes without other devices
MANY = 1 << 18  # plans, from which sorting them by schedule saves more than it costs
LARGE = 1 << 20  # ... and by whether they shard parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The pruning rules by the first level that has all they read.

    Fields that the search does not vary count as read at the mesh; `whole` needs inner and outer
    options together.
    """

    mesh: list[Rule] = field(default_factory=list)
    batch: list[Rule] = field(default_factory=list)
    inner: list[Rule] = field(default_factory=list)
    outer: list[Rule] = field(default_factory=list)
    whole: list[Rule] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Legal plans: every row with every inner and every outer option.

    `row_at` and `inner_at` are the places of rows and inner options in the tables they come from.
    """

    rows: Table
    inner: Table
    outer: Table
    row_at: NDArray[np.int64]
    inner_at: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Outer options, inner options, rows: the axes of its plans."""
        return length(self.outer), length(self.inner), length(self.rows)

    def part(self, rows: slice) -> Group:
        """Some of the rows."""
        return replace(self, rows=take(self.rows, rows), row_at=self.row_at[rows])

    def plan(self, base: Plan) -> Plan:
        """The plans as columns of shape (rows,), (inner, 1) and (outer, 1, 1)."""
        return columns(base, self.rows, self.inner, self.outer)


def levels(space: Space) -> Levels:
    """The pruning rules sorted into levels."""
    result = Levels()
    inner, outer = set(INNER_FIELDS), set(OUTER_FIELDS)
    rows = set(space.batch) - set(MESH_FIELDS)
    for rule in pruning_rules():
        reads = set(rule.reads)
        if reads & inner:
            (result.whole if reads & outer else result.inner).append(rule)
        elif reads & outer:
            result.outer.append(rule)
        else:
            (result.batch if reads & rows else result.mesh).append(rule)
    return result


def columns(base: Plan, *tables: Table) -> Plan:
    """The plan with each table along an axis of its own, the first along the last axis.

    Rows lie there, for they are many, and NumPy is quick along the last axis.
    """
    changes: dict[str, Any] = {}
    for axis, table in enumerate(tables):
        shape = (-1, *[1] * axis)
        changes |= {name: column.reshape(shape) for name, column in table.items()}
    return base.replace(**changes)


def asked(job: Job, base: Plan, *tables: Table) -> Job:
    """The job with tables as its plan, one along each axis, ready for rules."""
    return as_numpy(job.with_plan(columns(base, *tables)))


def refused(
    job: Job,
    rules: Sequence[Rule],
    alive: NDArray[np.bool_],
    *,
    census: Counter[str],
    weight: Any,
) -> NDArray[np.bool_]:
    """What the rules leave of `alive`, each plan counted under the first rule that refuses it.

    `weight` is how many candidates each place of `alive` stands for: a number or a column.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for rule in rules:
            fires = np.asarray(rule.condition(job), dtype=bool)
            if not fires.any():
                continue
            fires = fires & alive
            if count := int(np.sum(fires * weight)):
                census[rule.code] += count
            alive = alive & ~fires
    return alive


def groups(job: Job, space: Space, rows: Table, rules: Levels, census: Counter[str]) -> list[Group]:
    """The legal plans of some rows of mesh and batch, as groups in a fixed order."""
    base = space.settings.base
    if not length(rows):
        return []
    inner = ~redundant_inner(space, rows)
    outer = ~redundant_outer(job, space, rows)
    plans = asked(job, base, rows, space.inner)
    inner = refused(plans, rules.inner, inner, census=census, weight=outer.sum(axis=0))
    plans = asked(job, base, rows, space.outer)
    outer = refused(plans, rules.outer, outer, census=census, weight=inner.sum(axis=0))
    return _alike(space, rows, inner.T, outer.T)


def _alike(
    space: Space, rows: Table, inner: NDArray[np.bool_], outer: NDArray[np.bool_]
) -> list[Group]:
    """Rows with the same options.

    In a large space those of another schedule, and plans that shard parameters, are kept apart:
    each then costs the formulas of its own kind only.
    """
    count = length(rows) * space.num_options
    sharded = (space.outer["zero_stage"] >= 3) & (count > LARGE)
    kinds = np.stack([rows["schedule"], rows["vpp"] > 1], axis=1).astype(np.uint8)
    kinds *= count > MANY
    key = np.concatenate([np.packbits(inner, axis=1), np.packbits(outer, axis=1), kinds], axis=1)
    first, member = distinct(*key.T)
    found = [
        _group(space, rows, np.flatnonzero(member == number), inner[example], outer[example] & kind)
        for number, example in enumerate(first)
        for kind in (~sharded, sharded)
    ]
    return [group for group in found if min(group.shape)]


def _group(
    space: Space,
    rows: Table,
    row_at: NDArray[np.int64],
    inner: NDArray[np.bool_],
    outer: NDArray[np.bool_],
) -> Group:
    """The rows at these places with the options that are legal for them."""
    inner_at = np.flatnonzero(inner)
    return Group(
        rows=take(rows, row_at),
        inner=take(space.inner, inner_at),
        outer=take(space.outer, np.flatnonzero(outer)),
        row_at=row_at,
        inner_at=inner_at,
    )


def redundant_inner(space: Space, rows: Table) -> NDArray[np.bool_]:
    """Inner options (down) that make the same plan as an earlier one, for each row (across).

    One rank has no sequence to split and nothing to overlap; recompute of as many layers as a rank
    holds is recompute of all.
    """
    table = space.inner
    alone = rows["tp"] == 1
    first = np.ones(length(table), dtype=bool)
    for name in ("sequence_parallel", "overlap_tp"):
        first &= table[name] == table[name][0]
    result: NDArray[np.bool_] = alone & ~first[:, None]
    full = table["recompute"] == int(Recompute.FULL)
    if np.any(full & (table["recompute_layers"] == 0)):
        chunks = chunks_per_rank(space.settings.base.replace(**rows))
        held = -(-space.model.num_hidden_layers // (rows["pp"] * chunks)) * chunks
        result |= full[:, None] & (table["recompute_layers"][:, None] >= held)
    return result


def redundant_outer(job: Job, space: Space, rows: Table) -> NDArray[np.bool_]:
    """Outer options (down) that make the same plan as an earlier one, for each row (across).

    One replica has nothing to shard and nothing to reduce. Replicas of a sharding group (HSDP) are
    for sharded parameters, unless they are pinned. Where the host computes itself there is no other
    memory to move states to.
    """
    table, settings = space.outer, space.settings
    experts = rows["tp"] * rows["cp"] * rows["dp"] // np.maximum(rows["ep"] * rows["etp"], 1)
    alone = rows["dp"] * rows["cp"] <= 1
    if job.model.is_moe:
        alone &= experts <= 1
    first = np.ones(length(table), dtype=bool)
    for name in (n for n in OUTER_FIELDS if n != "offload_optimizer"):
        first &= table[name] == table[name][0]
    result: NDArray[np.bool_] = alone & ~first[:, None]
    if "dp_replicate" not in settings.pins:
        result |= (rows["dp_replicate"] > 1) & (table["zero_stage"] < 3)[:, None]
    if job.cluster.gpu.generation == CPU and "offload_optimizer" not in settings.pins:
        result |= (table["offload_optimizer"] > 0)[:, None]
    return result
