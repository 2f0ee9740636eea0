"""From the traces of a run to what it loses time to, and what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api.diagnosing.answer import answered
from meshwright.api.diagnosing.given import sorted_files
from meshwright.api.diagnosing.guards import guards_of
from meshwright.api.diagnosing.later import verb
from meshwright.api.diagnosing.own import own_job
from meshwright.api.diagnosing.pool import answers
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.words import shown
from meshwright.diagnose.across.axes import group_axes, with_axes
from meshwright.diagnose.across.join import across
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.logs.memory import read_snapshot
from meshwright.diagnose.logs.nccl import read_nccl_log
from meshwright.diagnose.path.replay import what_if
from meshwright.diagnose.pipeline.read import read_pipeline
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from meshwright.api.diagnosing.given import Given
    from meshwright.api.diagnosing.worker import Answer
    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.diagnosis import Diagnosis
    from meshwright.diagnose.rank import Rank
    from meshwright.plan.job import Job


def diagnose(
    paths: Sequence[str | Path] | str | Path = (),
    *,
    job: Job | str | Path | None = None,
    nccl_logs: Sequence[str | Path] = (),
    memory_snapshots: Sequence[str | Path] = (),
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Where the time of a run went, by what, and what to change.

    `paths` are traces of torch.profiler, traces of a pipeline's operations, folders of `meshwright
    train`, memory snapshots and NCCL logs, or folders and patterns of such. `job` is the plan that
    was run, or its plan.toml. `workers` processes read files, each one at a time. A file that
    cannot be read is in `left` of the answer; InvalidInput where none can.
    """
    _check_workers(workers)
    known = None if job is None else _job(job)
    given = sorted_files(paths, nccl_logs=nccl_logs, snapshots=memory_snapshots)
    read = answers(given.kineto, workers=workers, progress=progress)
    evidence, left = _evidence(given, read, known)
    if _is_empty(evidence):
        raise InvalidInput(_findings(read, left))
    guards = tuple(guards_of(evidence.ranks))
    return answered(evidence, guards=guards, left=(*given.left, *left))


def _check_workers(workers: object) -> None:
    if workers is not None and (
        not isinstance(workers, int) or isinstance(workers, bool) or workers < 1
    ):
        raise MeshwrightError(f"{shown(workers)} workers are none", hint="give 1 or more")


def _job(job: Job | str | Path) -> Job:
    from meshwright.api import read_job

    return read_job(job)


def _evidence(given: Given, read: Sequence[Answer], job: Job | None) -> tuple[Evidence, list[Left]]:
    """Everything that is known, ranks in order, and what was left out of it."""
    ranks = sorted((a.rank for a in read if a.rank is not None), key=_place)
    left = [_left(a.file, a.error) for a in read if a.rank is None]
    left += [one for rank in ranks for one in rank.left]
    read_metrics = verb("logs.metrics", "read_metrics")
    pipeline = _tried(read_pipeline, given.pipelines, left) if given.pipelines else None
    metrics = [_tried(read_metrics, path, left) for path in given.metrics]
    memory = [_tried(read_snapshot, path, left) for path in given.snapshots]
    nccl = [_tried(read_nccl_log, path, left) for path in given.nccl_logs]
    left += [one for part in (*memory, *nccl) if part is not None for one in part.left]
    job = own_job(ranks) if job is None else job
    ranks, joined = _together(ranks, job)
    evidence = Evidence(
        ranks=tuple(ranks),
        across=joined,
        pipeline=pipeline,
        metrics=next((m for m in metrics if m is not None), None),
        memory=tuple(m for m in memory if m is not None),
        nccl=tuple(n for n in nccl if n is not None),
        job=job,
    )
    return evidence, left


def _place(rank: Rank) -> tuple[bool, int, str]:
    """Ranks by number, those without one last."""
    return rank.rank is None, rank.rank or 0, rank.file


def _together(ranks: list[Rank], job: Job | None) -> tuple[list[Rank], Across | None]:
    """Ranks with the axes of their collectives, and what lies between them."""
    groups = [group for rank in ranks for group in rank.meta.groups]
    world = max((rank.world_size or 0 for rank in ranks), default=0) or None
    axes = group_axes(groups, job=job, world_size=world)
    ranks = [with_axes(rank, axes) for rank in ranks]
    joined = across(ranks, job=job)
    if joined is not None:
        joined = replace(joined, what_if_us=what_if(ranks, joined))
    return ranks, joined


def _tried(read: Callable[[Any], Any], path: Any, left: list[Left]) -> Any:
    """What `read` makes of a file, None and a note in `left` where it cannot."""
    try:
        return read(path)
    except (MeshwrightError, OSError) as error:
        first = path if not isinstance(path, tuple) else path[0]
        left.append(_left(str(first), str(error)))
        return None


def _left(file: str, reason: str) -> Left:
    return Left(what=file, count=1, time_us=0.0, reason=reason)


def _is_empty(evidence: Evidence) -> bool:
    parts = (evidence.ranks, evidence.memory, evidence.nccl)
    return not any(parts) and evidence.pipeline is None and evidence.metrics is None


def _findings(read: Sequence[Answer], left: Sequence[Left]) -> list[Finding]:
    """Why nothing could be read."""
    hints = {a.file: a.hint for a in read}
    return [Finding(message=x.reason, file=x.what, hint=hints.get(x.what, "")) for x in left]
