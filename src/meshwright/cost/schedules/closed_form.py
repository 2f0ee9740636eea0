"""Time and memory of a pipeline in closed form, for one plan or a column of plans.

Each function evaluates the formulas of the schedules that occur in the column, each on its rows: a
column of one schedule costs that schedule's formula only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from meshwright.cost.schedules.catalogue import definitions
from meshwright.cost.schedules.definition import Column, Definition, Shape, Times
from meshwright.cost.schedules.placement import stage_of
from meshwright.plan.plan import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable


def _present(schedule: Column, vpp: Column) -> list[tuple[Definition, Column]]:
    """The schedules that occur, each with the mask of its rows."""
    interleaved = np.greater(vpp, 1)
    found = []
    for definition in definitions():
        mask = np.equal(schedule, definition.schedule)
        if definition.schedule == Schedule.ONE_F_ONE_B and np.any(mask):
            mask = mask & (interleaved == definition.interleaved)
        if np.any(mask):
            found.append((definition, mask))
    return found


def _each(schedule: Column, shape: Shape, of: Callable[..., Column], *arguments: Column) -> Column:
    """`of(definition, shape, *arguments)`, each row under its own schedule.

    Rows of one schedule are taken out, computed and put back; a single schedule needs no taking.
    Rows of no known schedule are NaN.
    """
    present = _present(schedule, shape.vpp)
    if len(present) == 1:
        return of(present[0][0], shape, *arguments)
    columns = (shape.pp, shape.vpp, shape.num_microbatches, *arguments)
    common = np.broadcast_shapes(np.shape(schedule), *map(np.shape, columns))
    flat = [_flat(column, common) for column in columns]
    result = np.full(math.prod(common), np.nan)
    for definition, mask in present:
        rows = np.flatnonzero(np.broadcast_to(mask, common))
        pp, vpp, micro, *rest = (c.take(rows) if np.ndim(c) else c for c in flat)
        own = Shape(pp=pp, vpp=vpp, num_microbatches=micro)
        result[rows] = of(definition, own, *rest)
    return result.reshape(common)


def _flat(column: Column, common: tuple[int, ...]) -> Column:
    """A column broadcast to the common shape in one dimension; numbers stay numbers."""
    if np.ndim(column) == 0:
        return column
    return np.broadcast_to(column, common).reshape(-1)


def pipeline_s(
    schedule: Column,
    *,
    pp: Column,
    vpp: Column,
    num_microbatches: Column,
    forward_s: Column,
    backward_s: Column,
    weight_s: Column,
    total_forward_s: Column,
    total_backward_s: Column,
    total_weight_s: Column,
    p2p_s: Column = 0.0,
    overlap_pp: Column = True,
    ranks_after: Column = 0,
) -> Column:
    """Seconds from the first forward to the last backward pass of a step.

    `forward_s`, `backward_s` (input gradient) and `weight_s` (weight gradient) are those of the
    slowest rank for one micro-batch over all its chunks, `total_*` their sums over the ranks;
    schedules that do not split the backward pass add the last two. The time is never less than one
    micro-batch needs to pass all stages there and back. For DualPipe a rank's time is
    the mean of its two stages, each 1/pp of the model. `p2p_s` is one transfer between two ranks;
    without `overlap_pp` the sender waits for it. `ranks_after` is how many ranks follow the slowest
    (1F1B waits less for them). Scalars or columns that broadcast.
    """
    shape = Shape(pp=pp, vpp=vpp, num_microbatches=num_microbatches)
    slowest = (forward_s, backward_s, weight_s)
    totals = (total_forward_s, total_backward_s, total_weight_s)
    arguments = (*slowest, *totals, ranks_after, p2p_s, overlap_pp)
    busy_s = num_microbatches * (forward_s + backward_s + weight_s)
    time_s = busy_s + _each(schedule, shape, _beyond_s, *arguments)
    return np.maximum(time_s, total_forward_s + total_backward_s + weight_s)


def _beyond_s(definition: Definition, shape: Shape, *arguments: Column) -> Column:
    """Seconds beyond the slowest rank's work; `arguments` as in `pipeline_s`, in its order."""
    p2p_s, overlapped = arguments[7:]
    times = Times(*arguments[:7])
    ramp_s = definition.ramp_s(shape, times)
    if np.ndim(p2p_s) == 0 and p2p_s == 0:
        return ramp_s
    return ramp_s + p2p_s * definition.transfers(shape, overlapped)


def bubble_share(
    schedule: Column,
    *,
    pp: Column,
    vpp: Column,
    num_microbatches: Column,
    forward_s: Column = 1.0,
    backward_s: Column = 1.0,
    weight_s: Column = 1.0,
) -> Column:
    """Share of the pipeline's time in which a rank waits, for even stages and free transfers.

    The default times are the usual f = b = w.
    """
    time_s = pipeline_s(
        schedule,
        pp=pp,
        vpp=vpp,
        num_microbatches=num_microbatches,
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=weight_s,
        total_forward_s=pp * forward_s,
        total_backward_s=pp * backward_s,
        total_weight_s=pp * weight_s,
    )
    return 1.0 - num_microbatches * (forward_s + backward_s + weight_s) / time_s


def saved_microbatches(
    schedule: Column, *, pp: Column, vpp: Column, num_microbatches: Column, stage: Column
) -> Column:
    """Most activations that pipeline rank `stage` holds at once, in micro-batches.

    1 is what one micro-batch leaves on the rank in all its chunks together (for DualPipe: in one
    of its two stages). Where the backward pass is split, activations count until the weight
    gradient is done. Scalars or columns that broadcast.
    """
    shape = Shape(pp=pp, vpp=vpp, num_microbatches=num_microbatches)
    return _each(schedule, shape, lambda d, own, rank: d.saved(own, rank), stage)


def exact(schedule: Column, *, pp: Column, vpp: Column, num_microbatches: Column) -> Column:
    """True where `pipeline_s` equals the simulation for even stages and free transfers.

    What holds for uneven stages is in each definition's `exactness`.
    """
    shape = Shape(pp=pp, vpp=vpp, num_microbatches=num_microbatches)
    return np.equal(_each(schedule, shape, lambda d, own: d.exact(own)), 1)


def param_copies(schedule: Column) -> Column:
    """How many times the pipeline holds the model: 2 for DualPipe, else 1."""
    copies = np.ones(len(Schedule), dtype=np.int64)
    for definition in definitions():
        copies[definition.schedule] = definition.param_copies
    return copies[schedule]


def chunks_per_rank(schedule: Column, vpp: Column) -> Column:
    """Chunks on a rank: 2 for the V shapes and DualPipe whatever vpp says, else vpp."""
    fixed = np.zeros(len(Schedule), dtype=np.int64)
    for definition in definitions():
        fixed[definition.schedule] = definition.chunks
    return np.where(fixed[schedule] > 0, fixed[schedule], vpp)


def num_stages(schedule: Column, *, pp: Column, vpp: Column) -> Column:
    """Stages that the model is cut into: pp times the chunks, over the copies of the model."""
    return pp * chunks_per_rank(schedule, vpp) // param_copies(schedule)


def chunk_of(schedule: Column, *, pp: Column, vpp: Column, rank: Column, chunk: Column) -> Column:
    """Stage in model order (0 holds the embedding, the last the head) of a rank's chunk.

    Chunk c of rank r is stage c*pp + r; in a V, chunk 0 is stage r and chunk 1 stage 2*pp - 1 - r,
    so that rank 0 holds embedding and head; in DualPipe they are stages r and pp - 1 - r.
    """

    shape = Shape(pp=pp, vpp=vpp, num_microbatches=1)

    def stage(definition: Definition, own: Shape, own_rank: Column, own_chunk: Column) -> Column:
        return stage_of(definition.placement, pp=own.pp, rank=own_rank, chunk=own_chunk)

    return np.asarray(_each(schedule, shape, stage, rank, chunk), dtype=np.int64)
