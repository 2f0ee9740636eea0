"""Memory and traffic of a plan's ranks, measured on fake tensors beside the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api import read_job
from meshwright.api.training import need_libraries
from meshwright.base.errors import InvalidInput, MeshwrightError, UnknownName
from meshwright.cost.memory import memory
from meshwright.plan.job import world_size
from meshwright.train.model.configuration import keys_behind
from meshwright.train.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    return measure_ranks(known, _keys(known, job), ranks, extend=extend, check=check)


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


def _keys(job: Job, given: Job | str | Path) -> Mapping[str, Any]:
    """The keys of the model's config.json, as the plan file has them where there is one."""
    if not isinstance(given, str | Path):
        return keys_behind(job.model)
    from meshwright.base.locate import SYNTAXES, read

    document = read(given, syntax=SYNTAXES.get(Path(given).suffix.lower(), "toml"))
    return keys_behind(job.model, section=document.data["model"], folder=Path(given).parent)
