"""What a plan may choose beside its mesh: micro-batch and schedule, inner and outer options.

A value that a plan cannot differ in from another plan of the space is left out when the tables are
joined (`sensible`, and `legality.redundant`): without a pipeline there is one schedule.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.plan.plan import Recompute, RecomputeModule, Schedule
from meshwright.search.space import MESH_FIELDS, allowed, divisors, length, table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.model.architecture import Model
    from meshwright.plan.job import Workload
    from meshwright.search.space import Options, Table

BATCH_FIELDS = ("micro_batch_size", "schedule", "vpp", "embedding_in_split", "loss_in_split")
INNER_FIELDS = (
    "recompute",
    "recompute_modules",
    "recompute_layers",
    "sequence_parallel",
    "overlap_tp",
    "offload_activations",
)
OUTER_FIELDS = (
    "zero_stage",
    "reshard_after_forward",
    "offload_optimizer",
    "offload_params",
    "overlap_grad_reduce",
    "overlap_param_gather",
)
MAX_MICRO_BATCH = 16
MAX_TOKENS = 1 << 15  # of a micro-batch: from here on kernels gain nothing from more
MAX_VPP = 16
UNEVEN = 1.1  # layers of the longest chunk over the mean, up to which interleaving is considered

NONE, SELECTIVE, FULL = int(Recompute.NONE), int(Recompute.SELECTIVE), int(Recompute.FULL)


def batch_table(model: Model, workload: Workload, settings: Options) -> Table:
    """Micro-batch, schedule, virtual stages, split options, and fields pinned to several values."""
    micro = allowed("micro_batch_size", _micro_batches(model, workload, settings), settings)
    splits = [
        (first, last)
        for first in allowed("embedding_in_split", [False, True], settings)
        for last in allowed("loss_in_split", [False, True], settings)
        if first == last or {"embedding_in_split", "loss_in_split"} & set(settings.pins)
    ]
    more = _further(settings)
    rows = [
        (m, s, v, a, b, *others)
        for m, (s, v), (a, b) in product(micro, _schedules(model, settings), splits)
        for others in product(*more.values())
    ]
    return table((*BATCH_FIELDS, *more), rows)


def _micro_batches(model: Model, workload: Workload, settings: Options) -> list[int]:
    """Powers of two that divide the batch, or (exhaustive, without experts) all its divisors."""
    batch = workload.global_batch_size
    if settings.exhaustive and not model.is_moe:
        return divisors(batch)
    most = MAX_MICRO_BATCH
    if not settings.exhaustive:
        most = min(most, max(MAX_TOKENS // workload.seq_len, 2))
    sizes = (1 << power for power in range(most.bit_length()))
    return [size for size in sizes if batch % size == 0]


def _further(settings: Options) -> dict[str, list[Any]]:
    """Pinned or banned fields that no menu lists, with the values that are left."""
    listed = {*MESH_FIELDS, *BATCH_FIELDS, *INNER_FIELDS, *OUTER_FIELDS, "layout"}
    names = dict.fromkeys(n for n in (*settings.pins, *settings.bans) if n not in listed)
    return {n: allowed(n, [getattr(settings.base, n)], settings) for n in names}


def _schedules(model: Model, settings: Options) -> list[tuple[int, int]]:
    """Pairs of schedule and virtual stages, plain 1F1B first.

    Pins that no pair meets are kept as they are, for a rule to refuse.
    """
    most = model.num_hidden_layers if settings.exhaustive else min(model.num_hidden_layers, MAX_VPP)
    vpps = allowed("vpp", range(1, most + 1), settings)
    usual = {Schedule.ZB_H1: 1, Schedule.ZB_V: 2, Schedule.DUALPIPE_V: 2}
    unusual = {Schedule.V_HALF: 2, Schedule.DUALPIPE: 2, Schedule.ZB_H2: 1}
    fixed = usual | unusual if settings.exhaustive or "schedule" in settings.pins else usual
    if "schedule" in settings.pins:
        fixed = fixed | {Schedule.GPIPE: 1}  # as fast as 1F1B, with more memory
    pairs = [(int(Schedule.ONE_F_ONE_B), v) for v in vpps]
    pairs += [(int(schedule), v) for schedule, v in fixed.items() if v in vpps]
    schedules = allowed("schedule", list(dict.fromkeys(s for s, _ in pairs)), settings)
    met = [(s, v) for s, v in pairs if s in schedules]
    return met or list(product(schedules, vpps))


def sensible(mesh: Table, batch: Table, *, layers: int, settings: Options) -> NDArray[np.bool_]:
    """Which rows of the batch table (across) make sense on which rows of the mesh (down).

    Without a pipeline the schedule means nothing, so one is enough. Interleaving is considered
    where it cuts the layers evenly (`UNEVEN`), and slots for embedding and head where the layers
    alone do not divide.
    """
    pp, vpp = mesh["pp"][:, None], batch["vpp"][None, :]
    chunks = np.maximum(pp * vpp, 1)
    split = np.asarray(batch["embedding_in_split"], dtype=np.int64) + batch["loss_in_split"]
    slots = layers + split
    even = -(-slots // chunks) * chunks <= UNEVEN * slots
    keep = np.ones((length(mesh), length(batch)), dtype=bool)
    if "vpp" not in settings.pins:
        keep &= even | (vpp == 1) | (batch["schedule"] != int(Schedule.ONE_F_ONE_B))
    if not {"embedding_in_split", "loss_in_split"} & set(settings.pins):
        keep &= (split == 0) | (layers % chunks != 0)
    if length(batch):
        names = ("schedule", "vpp", "embedding_in_split", "loss_in_split")
        first = np.all([batch[n] == batch[n][0] for n in names], axis=0)
        keep = np.where(pp > 1, keep, first)
    return keep


def inner_table(model: Model, settings: Options) -> Table:
    """Options that reach inside a layer, as columns; the first row is the canonical one."""
    more = settings.exhaustive
    dense = more and not model.is_moe
    sharded = allowed("sequence_parallel", [True, False][: 1 + dense], settings)
    overlap = allowed("overlap_tp", [False, True][: 1 + dense], settings)
    offload = allowed("offload_activations", [0.0, 1.0][: 1 + more], settings)
    choices = product(_recompute(model, settings), sharded, overlap, offload)
    return table(INNER_FIELDS, [(*kind, s, o, a) for kind, s, o, a in choices])


def _recompute(model: Model, settings: Options) -> list[tuple[int, int, int]]:
    """Rows of kind, modules and layers.

    Pinned modules mean selective recompute and pinned layers full recompute, unless the kind is
    pinned too.
    """
    implied = [NONE, SELECTIVE, FULL]
    if "recompute_modules" in settings.pins:
        implied = [SELECTIVE]
    if "recompute_layers" in settings.pins:
        implied = [FULL]
    kinds = allowed("recompute", implied, settings)
    modules = allowed("recompute_modules", _modules(model, settings), settings)
    plain = allowed("recompute_modules", [int(RecomputeModule.CORE_ATTENTION)], settings)
    some = settings.exhaustive or not model.is_moe
    depths = allowed("recompute_layers", [0, 1, 2, 4] if some else [0], settings)
    shallow = allowed("recompute_layers", [0], settings)
    rows = [(k, m, n) for k in kinds if k == NONE for m in plain for n in shallow]
    rows += [(k, m, n) for k in kinds if k == SELECTIVE for m in modules for n in shallow]
    return rows + [
        (k, m, n) for k in kinds if k not in (NONE, SELECTIVE) for m in plain for n in depths
    ]


def _modules(model: Model, settings: Options) -> list[int]:
    """Sets of modules that selective recompute covers, as far as the model has them."""
    module = RecomputeModule
    moe, latent = model.is_moe, any(block.attention.is_latent for block in model.kinds)
    sets = [module.NORM | module.MOE_ACTIVATION if moe else module.NORM]
    sets.append(module.MLP | module.MOE if moe else module.MLP)
    if latent:
        sets += [module.MLA_UP_PROJECTION, module.MLA_UP_PROJECTION | sets[0]]
    if settings.exhaustive and not model.is_moe:
        sets.append(module.CORE_ATTENTION)
    return [int(s) for s in sets]


def outer_table(model: Model, settings: Options) -> Table:
    """Options that combine layers, as columns; the first row is the canonical one.

    Parameters can stay gathered, or on the host, only where they are sharded.
    """
    more = settings.exhaustive
    stages = allowed("zero_stage", [1, 0, 2, 3] if more else [1, 3], settings)
    reshard = allowed("reshard_after_forward", [True, False][: 1 + more], settings)
    optimizer = allowed("offload_optimizer", [0.0, 1.0], settings)
    params = allowed("offload_params", [False, True][: 1 + more], settings)
    overlap = [(True, True), (False, False)][: 1 + (more and not model.is_moe)]
    overlap = [
        (reduce, gather)
        for reduce in allowed("overlap_grad_reduce", [o[0] for o in overlap], settings)
        for gather in allowed("overlap_param_gather", [o[1] for o in overlap], settings)
        if reduce == gather or {"overlap_grad_reduce", "overlap_param_gather"} & set(settings.pins)
    ]
    rows = [
        (z, r, o, p, *both)
        for z, r, o, p, both in product(stages, reshard, optimizer, params, overlap)
        if z >= 3 or ((r or not _both(reshard)) and (not p or not _both(params)))
    ]
    return table(OUTER_FIELDS, rows)


def _both(values: list[Any]) -> bool:
    """True where a yes-or-no field is free."""
    return len(values) > 1
