"""Time and memory of a pipeline in closed form, for one plan or a column of plans.

Each function evaluates the formulas of the schedules that occur in the column and selects by row;
a column of one schedule costs that schedule's formula only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.cost.schedules.catalogue import definitions
from meshwright.cost.schedules.definition import Column, Definition, Shape, Times
from meshwright.cost.schedules.placement import stage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _present(schedule: Column, vpp: Column) -> Iterator[tuple[Definition, Column]]:
    """The schedules that occur, each with the mask of its rows."""
    interleaved = np.greater(vpp, 1)
    for definition in definitions():
        mask = np.equal(schedule, definition.schedule)
        if definition.schedule == 1:
            mask = mask & (interleaved == definition.interleaved)
        if np.any(mask):
            yield definition, mask


def _select(schedule: Column, vpp: Column, of: Callable[[Definition], Column]) -> Column:
    """`of(definition)` for the rows of each schedule that occurs."""
    result: Column = None
    for definition, mask in _present(schedule, vpp):
        value = of(definition)
        result = value if result is None else np.where(mask, value, result)
    return result


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
) -> Column:
    """Seconds from the first forward to the last backward pass of a step.

    `forward_s`, `backward_s` (input gradient) and `weight_s` (weight gradient) are those of the
    slowest rank for one micro-batch over all its chunks, `total_*` their sums over the ranks;
    schedules that do not split the backward pass add the last two. The time is never less than one
    micro-batch needs to pass all stages there and back. For DualPipe a rank's time is
    the mean of its two stages, each 1/pp of the model. `p2p_s` is one transfer between two ranks;
    without `overlap_pp` the sender waits for it. Scalars or columns that broadcast.
    """
    shape = Shape(pp=pp, vpp=vpp, num_microbatches=num_microbatches)
    times = Times(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=weight_s,
        total_forward_s=total_forward_s,
        total_backward_s=total_backward_s,
        total_weight_s=total_weight_s,
    )

    def beyond(definition: Definition) -> Column:
        return definition.ramp_s(shape, times) + p2p_s * definition.transfers(shape, overlap_pp)

    time_s = num_microbatches * times.slowest_s + _select(schedule, vpp, beyond)
    return np.maximum(time_s, total_forward_s + total_backward_s + weight_s)


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
    return _select(schedule, vpp, lambda definition: definition.saved(shape, stage))


def param_copies(schedule: Column) -> Column:
    """How many times the pipeline holds the model: 2 for DualPipe, else 1."""
    return _select(schedule, 1, lambda definition: definition.param_copies)


def chunks_per_rank(schedule: Column, vpp: Column) -> Column:
    """Chunks on a rank: 2 for the V shapes and DualPipe whatever vpp says, else vpp."""
    return _select(schedule, vpp, lambda definition: definition.chunks or vpp)


def num_stages(schedule: Column, *, pp: Column, vpp: Column) -> Column:
    """Stages that the model is cut into: pp times the chunks, over the copies of the model."""
    return pp * chunks_per_rank(schedule, vpp) // param_copies(schedule)


def chunk_of(schedule: Column, *, pp: Column, vpp: Column, rank: Column, chunk: Column) -> Column:
    """Stage in model order (0 holds the embedding, the last the head) of a rank's chunk.

    Chunk c of rank r is stage c*pp + r; in a V, chunk 0 is stage r and chunk 1 stage 2*pp - 1 - r,
    so that rank 0 holds embedding and head; in DualPipe they are stages r and pp - 1 - r.
    """

    def stage(definition: Definition) -> Column:
        return stage_of(definition.placement, pp=pp, rank=rank, chunk=chunk)

    return _select(schedule, vpp, stage)
