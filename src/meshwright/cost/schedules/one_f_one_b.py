"""1F1B: each rank keeps at most pp - rank micro-batches (PipeDream-Flush, arXiv 2006.09503)."""

from __future__ import annotations

import numpy as np

from meshwright.cost.schedules.definition import (
    Column,
    Definition,
    Kind,
    Operation,
    Shape,
    Times,
    minimum,
)
from meshwright.plan.plan import Schedule


def operations(pp: int, vpp: int, num_microbatches: int) -> list[list[Operation]]:
    """Warm-up forwards, then one forward and one backward in turn, then the last backwards."""
    del vpp
    return [_rank_operations(pp - 1 - rank, num_microbatches) for rank in range(pp)]


def _rank_operations(warmup: int, num_microbatches: int) -> list[Operation]:
    """Operations of a rank that runs `warmup` forwards before its first pair."""
    warmup = min(warmup, num_microbatches)
    result = [Operation(Kind.FORWARD, m, 0) for m in range(warmup)]
    for m in range(num_microbatches):
        if m + warmup < num_microbatches:
            result.append(Operation(Kind.FORWARD, m + warmup, 0))
        result.append(Operation(Kind.FULL_BACKWARD, m, 0))
    return result


def ramp_s(shape: Shape, times: Times) -> Column:
    """One micro-batch through the other ranks, there and back.

    A slowest rank that is not the last has warm-up and last passes to run while the ranks behind it
    do theirs, which shortens both its waits; the other ranks are taken as equal.
    """
    if np.ndim(times.ranks_after) == 0 and times.ranks_after == 0:
        return times.others_s
    other_s = times.others_s / np.maximum(shape.pp - 1, 1)
    backward_s = times.backward_s + times.weight_s
    waits_s = np.maximum(other_s - times.forward_s, 0) + np.maximum(other_s - backward_s, 0)
    return times.others_s + times.ranks_after * (waits_s - other_s)


def transfers(shape: Shape, overlapped: Column) -> Column:
    """Two for most micro-batches, overlapped or not, and the ramp.

    Only as many micro-batches are in flight as fill the round trip, so asynchronous transfers
    lengthen it still: by 2(pp-1) for every pp micro-batches. Blocking ones stop a middle rank twice
    and the outer ranks once a micro-batch.
    """
    pp, num_microbatches = shape.pp, shape.num_microbatches
    latency = 2 * num_microbatches * (pp - 1) / pp + 2 * (pp - 2)
    blocking = num_microbatches * np.minimum(pp - 1, 2) + np.maximum(2 * pp - 5, 1)
    return np.where(overlapped, latency, blocking) * (pp > 1)


def saved(shape: Shape, stage: Column) -> Column:
    """pp - stage micro-batches, or all of them when there are fewer."""
    return minimum(shape.num_microbatches, shape.pp - stage)


def exact(shape: Shape) -> Column:
    """Always."""
    return shape.num_microbatches >= 1


DEFINITION = Definition(
    name="1f1b",
    schedule=Schedule.ONE_F_ONE_B,
    paper="Narayanan et al. 2020, arXiv 2006.09503; 2021, arXiv 2104.04473 section 2.2",
    bubble="(pp-1)(f+b+w)",
    memory="pp - rank micro-batches",
    constraints="vpp = 1; any M (torch refuses M < pp)",
    exactness="even stages, or the last rank far the slowest; free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
)
