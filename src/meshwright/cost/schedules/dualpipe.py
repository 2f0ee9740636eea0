"""DualPipe: micro-batches enter at both ends of the pipeline (DeepSeek-V3, arXiv 2412.19437).

Each rank holds two stages, `rank` and pp - 1 - rank, so the model is held twice. Half of the
micro-batches flow down (chunk 0), half up (chunk 1). The phases and their lengths are those of
deepseek-ai/DualPipe `dualpipe.py` (section 3.2.1 of the report shows them for pp = 8).
"""

from __future__ import annotations

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.cost.schedules.definition import (
    Column,
    Definition,
    Operation,
    Placement,
    Shape,
    Times,
    minimum,
)
from meshwright.cost.schedules.two_way import two_way_operations, two_way_ramp_s
from meshwright.plan.plan import Schedule


def operations(pp: int, vpp: int, num_microbatches: int) -> list[list[Operation]]:
    """The eight phases for each rank; the lower half of the ranks mirrors the upper.

    Raises `MeshwrightError` for an odd number of ranks.
    """
    del vpp
    if pp % 2:
        raise MeshwrightError(
            f"DualPipe needs an even number of pipeline ranks, not {pp}", hint="use dualpipe-v"
        )
    counts = ((num_microbatches + 1) // 2, num_microbatches // 2)
    return [_rank_operations(rank, pp, counts) for rank in range(pp)]


def _rank_operations(rank: int, pp: int, counts: tuple[int, int]) -> list[Operation]:
    """Operations of one rank; `counts` are the micro-batches going down and up."""
    upper = rank < pp // 2
    built = two_way_operations(min(rank, pp - 1 - rank), pp // 2, max(counts[0], pp))
    result = []
    for operation in built:
        chunk = operation.chunk if upper else 1 - operation.chunk
        if operation.microbatch < counts[chunk]:
            microbatch = operation.microbatch + chunk * counts[0]
            result.append(operation._replace(chunk=chunk, microbatch=microbatch))
    return result


def ramp_s(shape: Shape, times: Times) -> Column:
    """Fill and drain of half the ranks, from both ends at once; stages are 1/pp of the model."""
    half = shape.pp / 2
    share = (half - 1) / np.maximum(shape.pp - 1, 1)
    return two_way_ramp_s(times, ranks=half, share=np.maximum(share, 0.0))


def transfers(shape: Shape, overlapped: Column) -> Column:
    """One for most micro-batches: a joined pair waits for both of its inputs; and the ramp."""
    pp, num_microbatches = shape.pp, shape.num_microbatches
    latency = (pp - 1) / pp * num_microbatches + 1.5 * pp - 3
    blocking = num_microbatches + 2 * pp - 3
    return np.where(overlapped, latency, blocking) * (pp > 1)


def saved(shape: Shape, stage: Column) -> Column:
    """pp + 1 micro-batches, each in one of the two stages, or fewer while filling."""
    depth = np.minimum(stage, shape.pp - 1 - stage)
    near = (shape.num_microbatches + (2 * stage < shape.pp)) // 2
    return minimum(np.minimum(near + depth + 1, shape.num_microbatches), shape.pp + 1)


def exact(shape: Shape) -> Column:
    """Every phase is there."""
    return (shape.num_microbatches % 2 == 0) & (shape.num_microbatches >= 2 * shape.pp)


DEFINITION = Definition(
    name="dualpipe",
    schedule=Schedule.DUALPIPE,
    paper="DeepSeek-V3 technical report, arXiv 2412.19437 section 3.2.1; deepseek-ai/DualPipe",
    bubble="n (f + max(b-w, 0)) + max(n b - f, n f), n = pp/2 - 1",
    memory="pp + 1 micro-batches; parameters twice",
    constraints="pp even; M even and >= 2pp",
    exactness="even stages, M even and >= 2pp, free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
    chunks=2,
    splits_backward=True,
    placement=Placement.BOTH_WAYS,
    param_copies=2,
)
