"""ZB-H2: no bubble at f = b = w, in up to twice the memory of 1F1B (arXiv 2401.10241, section 2.2).

More forwards before the first input gradient fill the head of the pipeline; a rank runs
2(pp - rank) - 1 of them, so that up to 2*pp - 1 micro-batches are held. Weight gradients fill the
tail.
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
from meshwright.cost.schedules.weights import numbered, with_weights
from meshwright.plan.plan import Schedule


def operations(pp: int, vpp: int, num_microbatches: int) -> list[list[Operation]]:
    """1F1B with a longer warm-up and input gradients only, and weight gradients between."""
    del vpp
    orders = [_order(2 * (pp - 1 - rank), num_microbatches) for rank in range(pp)]
    return with_weights(orders, placement=Placement.LOOPED, chunks=1, limits=[2 * pp - 1] * pp)


def _order(warmup: int, num_microbatches: int) -> list[Operation]:
    """Forwards, one more before each input gradient while there are any."""
    warmup = min(warmup, num_microbatches)
    forward, backward = (Kind.FORWARD, 0), (Kind.BACKWARD, 0)
    pairs = [forward, backward] * (num_microbatches - warmup)
    return numbered([forward] * warmup + pairs + [backward] * warmup)


def ramp_s(shape: Shape, times: Times) -> Column:
    """(pp-1) max(f, f + b - 2w, b - f): skew between the ranks, and what no pass can fill.

    With fewer than 2*pp - 1 micro-batches fewer weight gradients fill the tail.
    """
    filled = np.minimum((shape.num_microbatches - 1) / np.maximum(shape.pp - 1, 1), 2.0)
    forward = times.others_forward_s
    backward = times.others_input_s - forward
    unfilled = forward + backward - times.others_weight_s * filled
    return np.maximum(np.maximum(forward, backward - forward), unfilled)


def transfers(shape: Shape, overlapped: Column) -> Column:
    """The ramp, the rest hidden by the longer warm-up; a rank's mean sends where they block."""
    between = shape.pp - 1
    blocking = 2 * between / shape.pp * shape.num_microbatches + between
    return np.where(overlapped, between, blocking)


def saved(shape: Shape, stage: Column) -> Column:
    """2*pp - 1 micro-batches on every rank, or all of them when there are fewer."""
    return minimum(shape.num_microbatches, 2 * shape.pp - 1) + 0.0 * stage


def exact(shape: Shape) -> Column:
    """Enough weight gradients to fill the wait."""
    return shape.num_microbatches >= 2 * shape.pp - 1


DEFINITION = Definition(
    name="zb-h2",
    schedule=Schedule.ZB_H2,
    paper="Qi et al. 2023, arXiv 2401.10241 section 2.2",
    bubble="(pp-1) max(f, f+b-2w, b-f): skew between ranks, no wait inside at f = b = w",
    memory="2pp - 1 micro-batches on every rank",
    constraints="vpp = 1; M >= 2pp - 1 to fill the bubble",
    exactness="even stages, M >= 2pp - 1, free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
    splits_backward=True,
)
