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
    minimum,
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
    """One chunk of the other ranks, there and back."""
    return times.others_s / shape.vpp


def transfers(shape: Shape, overlapped: Column) -> Column:
    """The ramp there and back; every micro-batch and chunk where transfers block the rank."""
    ramp = 2 * (shape.pp - 1) + 2 * (shape.vpp - 1) * shape.pp
    steady = 2 * (shape.num_microbatches * shape.vpp - 1)
    return np.where(overlapped, ramp, 2 * (shape.pp - 1) + steady)


def saved(shape: Shape, stage: Column) -> Column:
    """Warm-up chunks and one more, in units of all vpp chunks."""
    warmup = 2 * (shape.pp - 1 - stage) + (shape.vpp - 1) * shape.pp
    return minimum(shape.num_microbatches * shape.vpp, warmup + 1) / shape.vpp


DEFINITION = Definition(
    name="interleaved",
    schedule=Schedule.ONE_F_ONE_B,
    interleaved=True,
    paper="Narayanan et al. 2021, arXiv 2104.04473 section 2.2.2; Megatron-Core 0.19 schedules.py",
    bubble="(pp-1)(f+b+w)/vpp",
    memory="(2(pp-1-rank) + (vpp-1)pp + 1)/vpp micro-batches",
    constraints="vpp > 1; M a multiple of pp (Megatron: remainder 0 with groups of pp)",
    exactness="even stages, M a multiple of pp, free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
)
