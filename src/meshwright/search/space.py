"""The space of plans: which values each field may take, level by level.

Four tables of columns. The *mesh* lists every way to write the number of GPUs as
tp * pp * cp * dp, with every expert mesh over it; the *batch* adds micro-batch, schedule, virtual
stages and whatever else is pinned to several values; *inner* options reach inside a layer
(recompute, sequence parallelism, ...), *outer* ones only combine layers (sharding, offload of
states, overlap of their communication). A plan is one row of each. Rules are applied at the first
level that has all the fields they read, so that a mesh which no rule admits is never multiplied
out.
"""

from __future__ import annotations

from dataclasses import field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest
from meshwright.base.noun import dataclass
from meshwright.model.architecture import Experts
from meshwright.plan.plan import ContextParallel, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Workload

Table = dict[str, Any]  # column by field name, all of one length

MESH_FIELDS = ("tp", "pp", "cp", "dp", "ep", "etp", "context_parallel", "dp_replicate")
MAX_DOMAINS = 4  # scale-up domains that a tensor-parallel group may span; one for a MoE model
MIN_LOCAL_TOKENS = 2048  # of a sequence on a context-parallel rank: fewer starve its kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user fixed: `pins` allow only the listed values of a field, `bans` exclude values.

    `base` carries the fields that the search does not vary (precision, optimizer, ...).
    `exhaustive` multiplies out every option; the default leaves out those that are dominated on
    every cluster (no overlap where overlap is free) and the less usual ones. The expert mesh
    multiplies the space of a MoE model by fifty, so its other axes keep to the usual values even
    then.
    """

    pins: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    bans: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    base: Plan = field(default_factory=Plan)
    exhaustive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The candidates: four tables whose product, less what makes no sense, is the space."""

    mesh: Table
    batch: Table
    inner: Table
    outer: Table
    settings: Options
    model: Model
    workload: Workload

    @property
    def num_options(self) -> int:
        """Combinations of inner and outer options."""
        return length(self.inner) * length(self.outer)


def space(model: Model, cluster: Cluster, workload: Workload, settings: Options) -> Space:
    """Every candidate plan for `cluster.num_gpus` GPUs under the settings."""
    from meshwright.search.menu import batch_table, inner_table, outer_table

    _known_fields(settings)
    return Space(
        mesh=mesh_table(model, cluster, workload, settings),
        batch=batch_table(model, workload, settings),
        inner=inner_table(model, settings),
        outer=outer_table(model, settings),
        settings=settings,
        model=model,
        workload=workload,
    )


def _known_fields(settings: Options) -> None:
    """Refuse pins and bans of fields that a plan does not have."""
    known = Plan.__dataclass_fields__
    for name in (*settings.pins, *settings.bans):
        if name not in known:
            raise UnknownName("plan field", name, suggestions=nearest(name, known))


def allowed(name: str, values: Sequence[Any], settings: Options) -> list[Any]:
    """The values of a field that pins and bans leave; pins may add values of their own."""
    pinned = settings.pins.get(name)
    banned = settings.bans.get(name, ())
    return [v for v in (pinned if pinned is not None else values) if v not in banned]


def divisors(number: int) -> list[int]:
    """All divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def table(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Table:
    """Rows as columns by name."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def take(columns: Table, rows: NDArray[Any] | slice) -> Table:
    """The table's rows at these positions."""
    return {name: column[rows] for name, column in columns.items()}


def length(columns: Table) -> int:
    """Rows of a table."""
    return len(next(iter(columns.values())))


def mesh_table(model: Model, cluster: Cluster, workload: Workload, settings: Options) -> Table:
    """Every tp * pp * cp * dp = num_gpus with every expert mesh, as columns.

    Degrees run over the divisors of the number of GPUs, tp up to the number of heads and to
    `MAX_DOMAINS` scale-up domains (one for a MoE model), pp up to the number of layers, cp as far
    as `MIN_LOCAL_TOKENS` are left. A pinned value is kept whatever it is, so that the rule which
    refuses it can say so.
    """
    num_gpus = cluster.num_gpus
    eps = allowed("ep", divisors(max(_expert_counts(model), default=1)), settings)
    rows = []
    for tp, pp, cp in product(*_degrees(model, cluster, workload, settings)):
        dp = max(num_gpus // max(tp * pp * cp, 1), 1)
        fits = num_gpus % max(tp * pp * cp, 1) == 0 or _pins_misfit(
            num_gpus, (tp, pp, cp), settings
        )
        if not fits or dp not in allowed("dp", [dp], settings):
            continue
        for cp_kind, replicas in product(
            _context_kinds(cp, settings), _replicas(cluster, tp, cp, dp, settings)
        ):
            rows += [
                (tp, pp, cp, dp, ep, etp, cp_kind, replicas)
                for etp in _expert_tp(model, tp, settings)
                for ep in eps
                if ep * etp <= tp * cp * dp or "ep" in settings.pins
            ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(MESH_FIELDS))
    return {name: columns[:, i] for i, name in enumerate(MESH_FIELDS)}


def _degrees(
    model: Model, cluster: Cluster, workload: Workload, settings: Options
) -> list[list[int]]:
    """Values of tp, pp and cp."""
    sizes = divisors(cluster.num_gpus)
    heads = max(block.attention.num_attention_heads for block in model.kinds)
    limits = {
        "tp": min(heads, (1 if model.is_moe else MAX_DOMAINS) * cluster.scale_up_domain),
        "pp": model.num_hidden_layers,
        "cp": max(workload.seq_len * (1 + settings.exhaustive) // MIN_LOCAL_TOKENS, 1),
    }
    return [
        allowed(name, [size for size in sizes if size <= limit], settings)
        for name, limit in limits.items()
    ]


def _pins_misfit(num_gpus: int, degrees: tuple[int, int, int], settings: Options) -> bool:
    """True when the pinned degrees among tp, pp and cp do not divide the GPUs by themselves."""
    pinned = [d for n, d in zip(("tp", "pp", "cp"), degrees, strict=True) if n in settings.pins]
    return num_gpus % max(prod(pinned), 1) != 0


def _context_kinds(cp: int, settings: Options) -> list[int]:
    """Ways to exchange keys and values over cp ranks."""
    if cp == 1:
        return [settings.base.context_parallel]  # type: ignore[list-item]
    kinds = [ContextParallel.RING, ContextParallel.ULYSSES][: 1 + settings.exhaustive]
    return allowed("context_parallel", [int(kind) for kind in kinds], settings)


def _replicas(cluster: Cluster, tp: int, cp: int, dp: int, settings: Options) -> list[int]:
    """Replicas of a sharding group: one, or (HSDP) as many as keep it inside a scale-up domain."""
    inside = max(cluster.scale_up_domain // max(tp, 1), 1)
    hybrid = dp * cp // inside
    sensible = inside > 1 and hybrid > 1 and dp * cp % inside == 0
    return allowed("dp_replicate", [1, hybrid] if sensible else [1], settings)


def _expert_tp(model: Model, tp: int, settings: Options) -> list[int]:
    """Tensor parallelism of the experts: none, or as much as elsewhere."""
    return allowed("etp", sorted({1, tp} if _expert_counts(model) else {1}), settings)


def _expert_counts(model: Model) -> set[int]:
    """Numbers of routed experts of the model's blocks."""
    blocks = (b.feed_forward for b in model.kinds)
    return {ff.num_experts for ff in blocks if isinstance(ff, Experts)}
