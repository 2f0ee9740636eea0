"""Traffic of a plan in closed form: calls and bytes that every rank puts into every collective.

It describes the engine here (train/: FSDP2, DTensor, its own expert and context parallelism, torch
pipelining) exactly, call by call; `meshwright measure` reads the same off a fake process group. The
times of `cost.step` follow Megatron's pattern instead (`cost.volumes`), which most published runs
share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.cost.traffic.flows import Piece, by_lane
from meshwright.cost.traffic.layout import chunks_of
from meshwright.cost.traffic.pipeline import handovers, sums, tied
from meshwright.cost.traffic.sharding import sharding

if TYPE_CHECKING:
    from meshwright.plan.job import Job

__all__ = ["Piece", "pieces_of", "traffic_of"]


def pieces_of(job: Job, rank: int) -> list[Piece]:
    """All traffic of a rank of pipeline stage `rank` and one step of one plan (scalars)."""
    found = list(sums(job))
    for chunk in chunks_of(job, rank):
        found += [*sharding(job, chunk), *handovers(job, chunk), *tied(job, chunk)]
    return found


def traffic_of(job: Job, rank: int) -> dict[tuple[str, str], tuple[float, float]]:
    """(calls, bytes) a step by axis and collective on pipeline rank `rank`."""
    return by_lane(pieces_of(job, rank))
