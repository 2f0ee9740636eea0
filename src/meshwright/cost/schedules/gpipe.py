"""GPipe: every forward pass, then every backward pass (arXiv 1811.06965)."""

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
    """All forwards chunk by chunk, then all backwards in the reverse order of chunks."""
    microbatches = range(num_microbatches)
    forwards = [Operation(Kind.FORWARD, m, c) for c in range(vpp) for m in microbatches]
    backwards = [
        Operation(Kind.FULL_BACKWARD, m, c) for c in reversed(range(vpp)) for m in microbatches
    ]
    return [forwards + backwards for _ in range(pp)]


def ramp_s(shape: Shape, times: Times) -> Column:
    """The other ranks' share of the first pass down and the last pass up, per chunk.

    With fewer micro-batches than ranks every chunk but the last also waits for the missing ones.
    """
    missing = np.maximum(shape.pp - shape.num_microbatches, 0)
    wait_s = times.slowest_s * (1.0 - 1.0 / shape.vpp)
    return times.others_s / shape.vpp + missing * wait_s


def transfers(shape: Shape, overlapped: Column) -> Column:
    """One pass down and one up; where transfers block, both of every micro-batch and chunk."""
    ramp = 2 * (shape.pp - 1)
    blocking = 2 * shape.vpp * shape.num_microbatches + 2 * (shape.pp - 2)
    return np.where(overlapped, ramp, blocking) * (shape.pp > 1)


def saved(shape: Shape, stage: Column) -> Column:
    """Every micro-batch of the step."""
    return shape.num_microbatches + 0.0 * stage


def exact(shape: Shape) -> Column:
    """Always."""
    return shape.num_microbatches >= 1


DEFINITION = Definition(
    name="gpipe",
    schedule=Schedule.GPIPE,
    paper="Huang et al. 2018, arXiv 1811.06965",
    bubble="(pp-1)(f+b+w)/vpp",
    memory="M micro-batches",
    constraints="any M",
    exactness="one rank is the slowest both forward and backward; free transfers",
    operations=operations,
    ramp_s=ramp_s,
    transfers=transfers,
    saved=saved,
    exact=exact,
)
