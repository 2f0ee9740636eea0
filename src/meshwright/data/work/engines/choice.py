"""The engine of a name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.names import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.data.stages.layout import Job
    from meshwright.data.work.engines import Engine

ENGINES = ("auto", "inline", "processes", "ray", "array")


def engine_of(name: str, job: Job, workers: int | None, *, lock: Path) -> Engine:
    """An engine that is not started yet; `workers` None stands for a process for each core.

    "auto" is a pool of processes, or this process alone where one is enough; so is what each part
    of an array uses. Workers hold `lock`.
    """
    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES)
        raise MeshwrightError(f"no engine is called {name!r}", hint=hint)
    if name == "ray":
        from meshwright.data.work.engines.ray import Ray

        return Ray(job, workers)
    wanted = max(1, min(workers or cores(), max(1, len(job.units))))
    if name == "inline" or (name != "processes" and wanted == 1):
        from meshwright.data.work.engines.inline import Inline

        return Inline(job)
    from meshwright.data.work.engines.processes import Processes

    return Processes(job, wanted, lock=lock)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
