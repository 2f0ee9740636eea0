"""The space of plans: which values each field may take, level by level.

Three levels, each a table of columns. The *mesh* level lists every way to write the number of GPUs
as tp * pp * cp * dp with every expert mesh over it; the *batch* level adds micro-batch, schedule
and virtual stages; the *option* level is a plain product of sharding, recompute, offload and the
like. Rules are applied at the first level that has all the fields they read, so that a mesh which
no rule admits is never multiplied out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest
from meshwright.model.architecture import Experts
from meshwright.plan.plan import Plan, Recompute, RecomputeModule, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Workload

Table = dict[str, Any]  # column by field name, all of one length

MESH_FIELDS = ("tp", "pp", "cp", "dp", "ep", "etp")
BATCH_FIELDS = ("micro_batch_size", "schedule", "vpp", "embedding_in_split", "loss_in_split")
MAX_MICRO_BATCH = 16
MAX_VPP = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user fixed: `pins` allow only the listed values of a field, `bans` exclude values.

    `base` carries the fields that the search does not vary (precision, optimizer, ...).
    `exhaustive` multiplies out every option; the default leaves out those that are dominated on
    every cluster (no overlap where overlap is free, gathering twice where once suffices).
    """

    pins: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    bans: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    base: Plan = field(default_factory=Plan)
    exhaustive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The candidates: a mesh table, the choices for batch fields, and the option table."""

    mesh: Table
    options: Table
    settings: Options
    model: Model
    workload: Workload

    @property
    def num_options(self) -> int:
        """Rows of the option table."""
        return len(next(iter(self.options.values())))


def space(model: Model, cluster: Cluster, workload: Workload, settings: Options) -> Space:
    """Every candidate plan for `cluster.num_gpus` GPUs under the settings."""
    _known_fields(settings)
    return Space(
        mesh=mesh_table(model, cluster.num_gpus, settings),
        options=option_table(model, settings),
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


def mesh_table(model: Model, num_gpus: int, settings: Options) -> Table:
    """Every tp * pp * cp * dp = num_gpus with every expert mesh, as columns.

    Degrees run over the divisors of the number of GPUs; a pinned value that does not divide it is
    kept so that the rule which refuses it can say so.
    """
    sizes = divisors(num_gpus)
    axes = [allowed(name, sizes, settings) for name in ("tp", "pp", "cp")]
    limits = (_largest_tp(model, settings), model.num_hidden_layers, num_gpus)
    axes = [
        [v for v in axis if v <= limit or name in settings.pins]
        for axis, limit, name in zip(axes, limits, ("tp", "pp", "cp"), strict=True)
    ]
    experts = _expert_counts(model)
    eps = allowed("ep", divisors(max(experts, default=1)), settings)
    rows = []
    for tp, pp, cp in product(*axes):
        dp = num_gpus // (tp * pp * cp)
        if tp * pp * cp > num_gpus or dp not in allowed("dp", [dp], settings):
            continue
        for etp in allowed("etp", sorted({1, tp}) if experts else [1], settings):
            rows += [(tp, pp, cp, dp, ep, etp) for ep in eps if ep * etp <= tp * cp * dp]
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(MESH_FIELDS))
    return {name: columns[:, i] for i, name in enumerate(MESH_FIELDS)}


def _largest_tp(model: Model, settings: Options) -> int:
    """Tensor parallelism beyond the number of heads cuts nothing more."""
    del settings
    return max(block.attention.num_attention_heads for block in model.kinds)


def _expert_counts(model: Model) -> set[int]:
    """Numbers of routed experts of the model's blocks."""
    blocks = (b.feed_forward for b in model.kinds)
    return {ff.num_experts for ff in blocks if isinstance(ff, Experts)}


def batch_choices(model: Model, workload: Workload, settings: Options) -> Table:
    """Micro-batch, schedule, virtual stages and split options, as a product table.

    Rows that make no sense for a given mesh (a schedule without a pipeline) are dropped when the
    two tables are joined.
    """
    sizes = [2**i for i in range(MAX_MICRO_BATCH.bit_length())]
    micro = allowed(
        "micro_batch_size", [s for s in sizes if s <= workload.global_batch_size], settings
    )
    schedules = _schedules(model, settings)
    splits = [
        (first, last)
        for first in allowed("embedding_in_split", [False, True], settings)
        for last in allowed("loss_in_split", [False, True], settings)
        if first == last or "loss_in_split" in settings.pins
    ]
    rows = [(m, s, v, a, b) for m, (s, v), (a, b) in product(micro, schedules, splits)]
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in BATCH_FIELDS]
    return {name: np.array(c) for name, c in zip(BATCH_FIELDS, columns, strict=True)}


def _schedules(model: Model, settings: Options) -> list[tuple[int, int]]:
    """Pairs of schedule and virtual stages."""
    layers = model.num_hidden_layers
    pairs = [(int(Schedule.ONE_F_ONE_B), v) for v in range(1, min(layers, MAX_VPP) + 1)]
    pairs += [(int(Schedule.ZB_H1), 1), (int(Schedule.ZB_V), 2), (int(Schedule.V_HALF), 2)]
    pairs += [(int(Schedule.DUALPIPE_V), 2), (int(Schedule.DUALPIPE), 2), (int(Schedule.GPIPE), 1)]
    schedules = allowed("schedule", sorted({s for s, _ in pairs}), settings)
    vpps = allowed("vpp", sorted({v for _, v in pairs}), settings)
    return [(s, v) for s, v in pairs if s in schedules and v in vpps]


def option_table(model: Model, settings: Options) -> Table:
    """Product of sharding, recompute, offload and loss options, as columns."""
    menu = _menu(model, exhaustive=settings.exhaustive)
    groups = []
    for names, rows in menu:
        kept = [
            row
            for row in rows
            if all(
                v in settings.pins.get(n, (v,)) and v not in settings.bans.get(n, ())
                for n, v in zip(names, row, strict=True)
            )
        ]
        groups.append((names, kept or [_pinned_row(names, rows[0], settings)]))
    rows = [sum(combination, ()) for combination in product(*(kept for _, kept in groups))]
    names = sum((names for names, _ in groups), ())
    columns = zip(*rows, strict=True)
    return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def _pinned_row(names: tuple[str, ...], row: tuple[Any, ...], settings: Options) -> tuple[Any, ...]:
    """A row of the pinned values where the menu has none of them."""
    return tuple(settings.pins.get(n, (v,))[0] for n, v in zip(names, row, strict=True))


def _menu(model: Model, *, exhaustive: bool) -> list[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Groups of options that go together, each a list of rows."""
    none, some, full = int(Recompute.NONE), int(Recompute.SELECTIVE), int(Recompute.FULL)
    light = int(RecomputeModule.NORM | RecomputeModule.MOE_ACTIVATION)
    mlp = int(RecomputeModule.MLP | RecomputeModule.MOE)
    core = int(RecomputeModule.CORE_ATTENTION)
    recompute = [(none, core, 0), (some, light, 0), (some, mlp, 0), (full, core, 0)]
    recompute += [(full, core, n) for n in (1, 2, 4)]
    if any(block.attention.is_latent for block in model.kinds):
        up = int(RecomputeModule.MLA_UP_PROJECTION)
        recompute += [(some, up, 0), (some, up | light, 0)]
    sharding = [(1, True), (3, True)]
    menu = [
        (("zero_stage", "reshard_after_forward"), sharding),
        (("recompute", "recompute_modules", "recompute_layers"), recompute),
        (("offload_optimizer",), [(0.0,), (1.0,)]),
    ]
    if exhaustive:
        menu[0] = (menu[0][0], [(0, True), (1, True), (2, True), (3, True), (3, False)])
        menu[1] = (menu[1][0], [*recompute, *((full, core, n) for n in (3, 6, 8, 12))])
        menu += [
            (("sequence_parallel",), [(True,), (False,)]),
            (("offload_activations",), [(0.0,), (1.0,)]),
            (("overlap_grad_reduce", "overlap_param_gather"), [(True, True), (False, False)]),
            (("overlap_tp",), [(True,), (False,)]),
        ]
    return menu


def join(mesh: Table, batch: Table) -> Table:
    """Every mesh row with every batch row that makes sense for it.

    Without a pipeline only plain 1F1B without virtual stages or split options remains; virtual
    stages need a pipeline and at least one layer each.
    """
    meshes, batches = _rows(mesh), _rows(batch)
    left = np.repeat(np.arange(meshes), batches)
    right = np.tile(np.arange(batches), meshes)
    table = {name: column[left] for name, column in mesh.items()}
    table |= {name: column[right] for name, column in batch.items()}
    plain = (table["schedule"] == int(Schedule.ONE_F_ONE_B)) & (table["vpp"] == 1)
    plain &= ~table["embedding_in_split"] & ~table["loss_in_split"]
    sensible = (table["pp"] > 1) | plain
    return take(table, np.flatnonzero(sensible))


def take(table: Table, rows: NDArray[np.int64]) -> Table:
    """The table's rows at these positions."""
    return {name: column[rows] for name, column in table.items()}


def _rows(table: Table) -> int:
    """Length of a table."""
    return len(next(iter(table.values())))
