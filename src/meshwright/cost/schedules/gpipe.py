"""GPipe: every forward pass, then every backward pass (arXiv 1811.06965)."""

from __future__ import annotations

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
    """The other ranks' share of the first pass down and the last pass up, per chunk."""
    return times.others_s / shape.vpp


def transfers(shape: Shape, overlapped: Column) -> Column:
    """One pass down and one up; every further micro-batch too where transfers block the rank."""
    ramp = 2 * (shape.pp - 1)
    steady = 2 * shape.vpp * (shape.num_microbatches - 1) * (shape.pp > 1)
    return ramp + steady * (1 - overlapped)


def saved(shape: Shape, stage: Column) -> Column:
    """Every micro-batch of the step."""
    return shape.num_microbatches + 0.0 * stage


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
)
