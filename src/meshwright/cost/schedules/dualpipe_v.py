"""DualPipeV: one half of DualPipe folded into a V, so that the model is held once.

Chunk 0 of rank r is stage r, chunk 1 is stage 2*pp - 1 - r. The phases and their lengths are those
of deepseek-ai/DualPipe `dualpipev.py`; idea by Qi et al. ("cut in half").
"""

from __future__ import annotations

import numpy as np

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
    """The eight phases for at least 2*pp micro-batches, less those that do not exist."""
    del vpp
    built = max(num_microbatches, 2 * pp)
    return [
        [op for op in two_way_operations(rank, pp, built) if op.microbatch < num_microbatches]
        for rank in range(pp)
    ]


def ramp_s(shape: Shape, times: Times) -> Column:
    """Fill and drain of all ranks in chunks of half a rank."""
    return two_way_ramp_s(times, ranks=shape.pp, share=0.5)


def transfers(shape: Shape, overlapped: Column) -> Column:
    """Two for most micro-batches: a joined pair waits for both of its inputs; and the ramp."""
    pp, num_microbatches = shape.pp, shape.num_microbatches
    latency = 2 * (pp - 1) / pp * num_microbatches + 3 * pp - 6
    blocking = num_microbatches * np.minimum(pp - 1, 2) + 3 * pp - 6
    return np.where(overlapped, latency, blocking) * (pp > 1)


def saved(shape: Shape, stage: Column) -> Column:
    """2*pp + 1 chunks, or fewer while filling."""
    filling = np.minimum(shape.num_microbatches + stage + 1, 2 * shape.num_microbatches)
    return minimum(filling, 2 * shape.pp + 1) / 2


def exact(shape: Shape) -> Column:
    """Every phase is there."""
    return shape.num_microbatches >= 2 * shape.pp


DEFINITION = Definition(
    name="dualpipe-v",
    schedule=Schedule.DUALPIPE_V,
    paper="deepseek-ai/DualPipe dualpipev.py, after arXiv 2412.19437 section 3.2.1",
    bubble="half of n (f + max(b-w, 0)) + max(n b - f, n f), n = pp - 1 (whole-rank times)",
    memory="pp + 1/2 micro-batches",
    constraints="two chunks per rank; M >= 2pp",
    exactness="even stages, M >= 2pp, free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
    chunks=2,
    splits_backward=True,
    placement=Placement.V,
)
