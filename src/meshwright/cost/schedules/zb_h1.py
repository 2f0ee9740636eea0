"""ZB-H1: 1F1B with the weight gradient split off, in 1F1B's memory (arXiv 2401.10241, section 2.1).

Forwards and input gradients keep the order of 1F1B. Weight gradients fill the waits, and are forced
when a rank holds pp micro-batches, so every rank holds as many as 1F1B's first.
"""

from __future__ import annotations

import numpy as np

from meshwright.cost.schedules import one_f_one_b
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


def operations(pp: int, vpp: int, num_microbatches: int) -> list[list[Operation]]:
    """1F1B's order with input gradients only, and weight gradients between."""
    orders = [
        [op._replace(kind=Kind.BACKWARD) if op.kind == Kind.FULL_BACKWARD else op for op in ops]
        for ops in one_f_one_b.operations(pp, vpp, num_microbatches)
    ]
    return with_weights(orders, placement=Placement.LOOPED, chunks=1, limits=[pp] * pp)


def ramp_s(shape: Shape, times: Times) -> Column:
    """(pp-1)(f + b - min(f, b, w)): a weight gradient hides as much wait as it and its kin last.

    With fewer micro-batches than ranks only M-1 weight gradients are there.
    """
    filled = np.minimum((shape.num_microbatches - 1) / np.maximum(shape.pp - 1, 1), 1.0)
    forward = times.others_forward_s
    backward = times.others_input_s - forward
    hidden = np.minimum(np.minimum(forward, backward), times.others_weight_s)
    return forward + backward - hidden * filled


def transfers(shape: Shape, overlapped: Column) -> Column:
    """Twice the ramp, since waiting weight gradients hide the rest; 1F1B's where they block."""
    return np.where(overlapped, 4 * (shape.pp - 1), one_f_one_b.transfers(shape, False))


def saved(shape: Shape, stage: Column) -> Column:
    """pp micro-batches on every rank, or all of them when there are fewer."""
    return minimum(shape.num_microbatches, shape.pp) + 0.0 * stage


def exact(shape: Shape) -> Column:
    """Enough weight gradients to fill the wait."""
    return shape.num_microbatches >= shape.pp


DEFINITION = Definition(
    name="zb-h1",
    schedule=Schedule.ZB_H1,
    paper="Qi et al. 2023, arXiv 2401.10241 section 2.1",
    bubble="(pp-1)(f + b - min(f, b, w))",
    memory="pp micro-batches on every rank",
    constraints="vpp = 1; M >= pp to fill the bubble",
    exactness="even stages, M >= pp, free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
    splits_backward=True,
)
