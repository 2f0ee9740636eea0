"""Interleaved 1F1B: vpp chunks per rank shrink the bubble (arXiv 2104.04473, section 2.2.2).

Order and warm-up count are those of Megatron-Core's `schedules.py` (0.19) with its default
micro-batch group of pp.
"""

from __future__ import annotations

import numpy as np

from meshwright.cost.schedules.definition import (
    Column,
    Definition,
    Kind,
    Operation,
    Shape,
    Times,
)
from meshwright.plan.plan import Schedule


def operations(pp: int, vpp: int, num_microbatches: int) -> list[list[Operation]]:
    """Warm-up forwards, then forward and backward in turn over the table of micro-batch groups.

    Where pp does not divide the number of micro-batches Megatron's own order waits for itself (and
    is refused there); then the order for the next multiple is used, less what does not exist.
    """
    table = _table(pp, vpp, -(-num_microbatches // pp) * pp)
    lists = [_rank_operations(table, 2 * (pp - 1 - r) + (vpp - 1) * pp, vpp) for r in range(pp)]
    return [[op for op in ops if op.microbatch < num_microbatches] for ops in lists]


def _table(pp: int, vpp: int, num_microbatches: int) -> list[tuple[int, int]]:
    """(micro-batch, chunk) in forward order: groups of pp micro-batches, chunk by chunk."""
    return [
        (start + i, chunk)
        for start in range(0, num_microbatches, pp)
        for chunk in range(vpp)
        for i in range(pp)
    ]


def _rank_operations(table: list[tuple[int, int]], warmup: int, vpp: int) -> list[Operation]:
    """The table forward, and with chunks reversed backward, `warmup` entries behind."""
    warmup = min(warmup, len(table))
    forwards = [Operation(Kind.FORWARD, m, c) for m, c in table]
    backwards = [Operation(Kind.FULL_BACKWARD, m, vpp - 1 - c) for m, c in table]
    result = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        result += (forward, backward)
    return result + backwards[len(table) - warmup :]


def ramp_s(shape: Shape, times: Times) -> Column:
    """One chunk of the other ranks, there and back, and waits for an unfilled last group.

    Every chunk but the last waits for the missing micro-batches: forward and backward at once in
    the steady state, one after the other when there are fewer micro-batches than ranks.
    """
    missing = -shape.num_microbatches % shape.pp
    backward_s = times.backward_s + times.weight_s
    at_once_s = np.maximum(times.forward_s, backward_s)
    wait_s = np.where(
        shape.num_microbatches < shape.pp, times.forward_s + backward_s, at_once_s
    ) * (1.0 - 1.0 / shape.vpp)
    return times.others_s / shape.vpp + missing * wait_s


def transfers(shape: Shape, overlapped: Column) -> Column:
    """One micro-batch through all stages there and back: later ones hide theirs in the slack.

    Where transfers block: every rank's mean number of sends a micro-batch, 2(vpp*pp-1)/pp.
    """
    ramp = 2 * (shape.vpp * shape.pp - 1)
    blocking = ramp / shape.pp * shape.num_microbatches + 2 * shape.pp - 3
    return np.where(overlapped, ramp, blocking) * (shape.pp > 1)


def saved(shape: Shape, stage: Column) -> Column:
    """Warm-up chunks and one more, over vpp; fewer where they reach into an unfilled group."""
    first = 2 * (shape.pp - 1 - stage) + (shape.vpp - 1) * shape.pp + 1
    rest = shape.num_microbatches % shape.pp
    full = (shape.num_microbatches - rest) * shape.vpp
    chunk, place = np.divmod(np.clip(first - full, 0, shape.vpp * shape.pp), shape.pp)
    return (np.minimum(first, full) + chunk * rest + np.minimum(place, rest)) / shape.vpp


def exact(shape: Shape) -> Column:
    """Full groups only."""
    return shape.num_microbatches % shape.pp == 0


DEFINITION = Definition(
    name="interleaved",
    schedule=Schedule.ONE_F_ONE_B,
    interleaved=True,
    paper="Narayanan et al. 2021, arXiv 2104.04473 section 2.2.2; Megatron-Core 0.19 schedules.py",
    bubble="(pp-1)(f+b+w)/vpp",
    memory="(2(pp-1-rank) + (vpp-1)pp + 1)/vpp micro-batches",
    constraints="vpp > 1; M a multiple of pp",
    exactness="even stages, M a multiple of pp, free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
)
