"""Memory and traffic of a plan's ranks, measured on fake tensors beside the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api import read_job
from meshwright.api.training import config_keys, need_libraries
from meshwright.base.errors import InvalidInput, MeshwrightError, UnknownName
from meshwright.cost.memory import memory
from meshwright.plan.job import world_size
from meshwright.train.refusals import refusals

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.plan.job import Job
    from meshwright.train.measure.plan import Measured

STAGES = ("fullest", "first", "second", "last", "all")


def measure(
    job: Job | str | Path,
    *,
    rank: int | None = None,
    stage: str = "fullest",
    extend: bool = True,
    check: bool = False,
) -> tuple[Measured, ...]:
    """What ranks of a job's plan take in memory and traffic, without a device or peers.

    One global `rank`, or the first rank of the pipeline stages that `stage` names: "first",
    "second", "last", "all", or "fullest" by the prediction. With `extend`, deep models and many
    micro-batches follow from few; `check` says how well. InvalidInput where the engine cannot run
    the plan.
    """
    known = read_job(job)
    found = refusals(known)
    if found:
        raise InvalidInput(found)
    ranks = _ranks(known, rank, stage)
    need_libraries()
    from meshwright.train.measure.plan import measure_ranks

    return measure_ranks(known, config_keys(known, job), ranks, extend=extend, check=check)


def _ranks(job: Job, rank: int | None, stage: str) -> list[int]:
    """The global ranks that are meant; pp is the slowest axis."""
    world, pp = int(world_size(job.plan)), int(job.plan.pp)
    if rank is not None:
        if not 0 <= rank < world:
            raise MeshwrightError(
                f"the plan has no rank {rank}", hint=f"give one from 0 to {world - 1}"
            )
        return [rank]
    if stage not in STAGES:
        raise UnknownName("stage", stage, suggestions=STAGES)
    chosen = {
        "first": [0],
        "second": [min(1, pp - 1)],
        "last": [pp - 1],
        "all": list(range(pp)),
    }.get(stage) or [int(memory(job).stage)]
    return [number * (world // pp) for number in chosen]
