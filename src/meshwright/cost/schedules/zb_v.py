"""ZB-V: two chunks per rank in a V, no bubble at f = b = w, memory of 1F1B (arXiv 2405.15362).

The order of forwards and input gradients is that of PyTorch 2.13 (`ScheduleZBVZeroBubble`, after
arXiv 2401.10241): fill, then forward and input gradient of either chunk in turn, then drain.
Weight gradients fill the waits with at most 2*pp chunks held.
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

F0, F1 = (Kind.FORWARD, 0), (Kind.FORWARD, 1)
B0, B1 = (Kind.BACKWARD, 0), (Kind.BACKWARD, 1)


def operations(pp: int, vpp: int, num_microbatches: int) -> list[list[Operation]]:
    """The order for at least 2*pp - 1 micro-batches, less those that do not exist."""
    del vpp
    orders = [_order(rank, pp, num_microbatches) for rank in range(pp)]
    return with_weights(orders, placement=Placement.V, chunks=2, limits=[2 * pp] * pp)


def _order(rank: int, pp: int, num_microbatches: int) -> list[Operation]:
    """Forwards and input gradients of one rank in order."""
    built = max(num_microbatches, 2 * pp - 1)
    behind = pp - rank
    fill = [F0] * (2 * behind - 1) + [F1, F0] * rank + [F1, B1] * behind
    steady = [F0, B0, F1, B1] * (built - pp - behind + 1) + [B0, F1, B1] * (behind - 1)
    drain = [B0, B1] * rank + [B0] * behind
    return [op for op in numbered(fill + steady + drain) if op.microbatch < num_microbatches]


def ramp_s(shape: Shape, times: Times) -> Column:
    """The longest of five paths through the V, per chunk; b and w are tight at f = b = w.

    With fewer than 2*pp micro-batches fewer weight gradients fill the wait.
    """
    forward = times.others_forward_s
    backward, weight = times.others_input_s - forward, times.others_weight_s
    filled = np.minimum((shape.num_microbatches - 1) / np.maximum(shape.pp - 1, 1), 2.0)
    unfilled = 2 * np.maximum(forward, backward) - weight * filled
    longest = np.maximum(np.maximum(backward, weight), 2 * forward - backward)
    return 0.5 * np.maximum(longest, unfilled)


def saved(shape: Shape, stage: Column) -> Column:
    """2*pp chunks on every rank, or all when there are fewer."""
    return minimum(shape.num_microbatches, shape.pp) + 0.0 * stage


def transfers(shape: Shape, overlapped: Column) -> Column:
    """Five times the ramp; where transfers block, also the mean number of a rank's sends.

    The turn of the V is no transfer, so a micro-batch makes 4(pp-1), forward and backward.
    """
    between = shape.pp - 1
    blocking = 4 * between / shape.pp * shape.num_microbatches + 2 * between
    return np.where(overlapped, 5 * between, blocking)


def exact(shape: Shape) -> Column:
    """Enough weight gradients to fill the wait."""
    return shape.num_microbatches >= 2 * shape.pp


DEFINITION = Definition(
    name="zb-v",
    schedule=Schedule.ZB_V,
    paper="Qi et al. 2023, arXiv 2401.10241 (ZB-V); 2024, arXiv 2405.15362",
    bubble="(pp-1)/2 max(b, w, 2f-b, 2 max(f,b) - 2w) (whole-rank times): skew, no wait inside",
    memory="pp micro-batches on every rank",
    constraints="two chunks per rank; M >= 2pp to fill the bubble",
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
