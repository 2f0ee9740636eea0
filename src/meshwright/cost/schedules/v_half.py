"""V-Half: two chunks per rank in a V that hold half of 1F1B's activations (arXiv 2405.15362).

The paper's building block sets how far neighbouring ranks lie apart: 2 units in the forward pass of
chunk 0 and the input gradient of chunk 1, 1 unit in the other two, one micro-batch every 6 units.
Only its order is kept here; operations then run as soon as they can, and weight gradients fill the
waits. The order is that of f = b = w, as in the paper.
"""

from __future__ import annotations

import numpy as np

from meshwright.cost.schedules.definition import (
    Column,
    Definition,
    Kind,
    Operation,
    Placement,
    Shape,
    Times,
    minimum,
)
from meshwright.cost.schedules.weights import with_weights
from meshwright.plan.plan import Schedule

PERIOD = 6  # units between micro-batches: one forward, input and weight gradient of two chunks


def operations(pp: int, vpp: int, num_microbatches: int) -> list[list[Operation]]:
    """The repeated building block in order of start, with weight gradients filled in."""
    del vpp
    orders = [_order(rank, pp, num_microbatches) for rank in range(pp)]
    return with_weights(orders, placement=Placement.V, chunks=2, limits=[pp + 2] * pp)


def _order(rank: int, pp: int, num_microbatches: int) -> list[Operation]:
    """Forwards and input gradients of one rank by their start in the repeated block.

    Where two start at once the later stage of the micro-batch comes first.
    """
    block = _starts(rank, pp)
    starts = [
        (start + PERIOD * m, -i, Operation(kind, m, chunk))
        for m in range(num_microbatches)
        for i, (start, kind, chunk) in enumerate(block)
    ]
    return [operation for _, _, operation in sorted(starts)]


def _starts(rank: int, pp: int) -> list[tuple[int, Kind, int]]:
    """(unit, kind, chunk) of one micro-batch on `rank`: down, up, down, up the V."""
    last = pp - 1
    turn = 2 * last + 1
    loss = turn + last + 1
    back = loss + 2 * last + 1
    return [
        (2 * rank, Kind.FORWARD, 0),
        (turn + last - rank, Kind.FORWARD, 1),
        (loss + 2 * rank, Kind.BACKWARD, 1),
        (back + last - rank, Kind.BACKWARD, 0),
    ]


def ramp_s(shape: Shape, times: Times) -> Column:
    """Fill and drain, and a wait for every micro-batch where f, b and w are not equal, per chunk.

    The longest of four paths, exact for even pp and the usual f, b, w; at f = b = w it is 3(pp-1).
    Two of them pass by weight gradients of the slowest rank, at most by all it has.
    """
    f, b, w = times.forward_s, times.backward_s, times.weight_s
    pp, m = shape.pp, shape.num_microbatches
    longer = np.maximum(f, b)
    passed_back, passed_forth = (minimum(n + m, 2 * m) for n in (pp / 2 - 1, 2 * pp - 1))
    free = (2 * pp - 1) * f + (pp - 3) * b + w
    backward = (1.5 * pp - m) * f + (2 * pp - 4 + 2 * m) * b - passed_back * w
    forward = (2 * pp - 4 + 2 * m) * f + (1.5 * pp - m) * b - passed_forth * w
    weight = (pp / 2 + m) * (f + b) + (2 * pp - 4) * longer + (1 - 2 * m) * w
    paths = np.maximum(np.maximum(free, backward), np.maximum(forward, weight))
    return 0.5 * paths * (pp > 1)


def transfers(shape: Shape, overlapped: Column) -> Column:
    """The ramp, and two a micro-batch even when overlapped, as so few are in flight.

    Where transfers block, a rank's mean number of sends and half as many waits behind others'.
    """
    between = shape.pp - 1
    latency = 2 * shape.num_microbatches + 4 * shape.pp - 6
    blocking = 6 * between / shape.pp * shape.num_microbatches + 4 * shape.pp - 6
    return np.where(overlapped, latency, blocking) * (between > 0)


def saved(shape: Shape, stage: Column) -> Column:
    """About pp/2 micro-batches: pp + 1 or pp + 2 chunks, by the parity of pp and rank."""
    even = shape.pp % 2 == 0
    full = shape.pp + 1 + np.where(even, stage % 2, np.equal(stage, 0))
    filling = shape.num_microbatches + 1 + (stage + 1) // 2
    return minimum(2 * shape.num_microbatches, np.minimum(filling, full)) / 2


def exact(shape: Shape) -> Column:
    """Never, but without a pipeline."""
    return shape.pp == 1


DEFINITION = Definition(
    name="v-half",
    schedule=Schedule.V_HALF,
    paper="Qi et al. 2024, arXiv 2405.15362",
    bubble="3/2 (pp-1) f at f = b = w (whole-rank times), and a wait per micro-batch otherwise",
    memory="(pp+1)/2 or (pp+2)/2 micro-batches",
    constraints="two chunks per rank",
    exactness="none",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
    chunks=2,
    splits_backward=True,
    placement=Placement.V,
)
