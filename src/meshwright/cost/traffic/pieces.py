"""All traffic of a rank, axis by axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.cost.traffic.context import context
from meshwright.cost.traffic.expert import expert
from meshwright.cost.traffic.flows import Piece, by_lane
from meshwright.cost.traffic.layout import chunks_of
from meshwright.cost.traffic.pipeline import handovers, sums, tied
from meshwright.cost.traffic.sharding import sharding
from meshwright.cost.traffic.tensor import summed_together, tensor

if TYPE_CHECKING:
    from meshwright.plan.job import Job


def pieces_of(job: Job, rank: int) -> list[Piece]:
    """Traffic of the first rank of pipeline stage `rank` in one step of one plan (scalars)."""
    chunks = chunks_of(job, rank)
    found = [*sums(job), *summed_together(job, chunks)]
    for chunk in chunks:
        found += [*sharding(job, chunk), *tensor(job, chunk)]
        found += [*context(job, chunk), *expert(job, chunk)]
        found += [*handovers(job, chunk), *tied(job, chunk)]
    return found


def traffic_of(job: Job, rank: int) -> dict[tuple[str, str], tuple[float, float]]:
    """(calls, bytes) a step by axis and collective of the first rank of pipeline stage `rank`."""
    return by_lane(pieces_of(job, rank))
