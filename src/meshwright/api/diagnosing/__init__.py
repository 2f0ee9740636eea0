"""From the traces of a run to what it loses time to, and what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api.diagnosing.answer import answered
from meshwright.api.diagnosing.given import HINT, sorted_files
from meshwright.api.diagnosing.guards import guards_of
from meshwright.api.diagnosing.own import own_job
from meshwright.api.diagnosing.pool import answers
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.words import plural, shown
from meshwright.diagnose.across.axes import group_axes, with_axes
from meshwright.diagnose.across.join import across
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.logs.beside import with_prediction
from meshwright.diagnose.logs.memory import read_snapshot
from meshwright.diagnose.logs.metrics import read_metrics
from meshwright.diagnose.logs.nccl import read_nccl_log
from meshwright.diagnose.path.replay import what_if
from meshwright.diagnose.pipeline.read import read_pipeline
from meshwright.diagnose.trace.columns import Left
from meshwright.report.check.visible import harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from meshwright.api.diagnosing.given import Given
    from meshwright.api.diagnosing.worker import Answer
    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.diagnosis import Diagnosis
    from meshwright.diagnose.rank import Rank
    from meshwright.plan.job import Job

MOST_FINDINGS = 20  # where nothing at all can be read


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
    failed = [_failure(one) for one in read if one.rank is None]
    evidence = _evidence(given, [one.rank for one in read if one.rank is not None], known, failed)
    if _is_empty(evidence):
        raise InvalidInput(_few([*failed, *map(_seen, given.left)]))
    left = (*given.left, *map(_left, failed), *_left_of(evidence))
    return answered(
        evidence, guards=tuple(guards_of(evidence.ranks, evidence.job)), left=merged(left)
    )


def _check_workers(workers: object) -> None:
    if workers is not None and (
        not isinstance(workers, int) or isinstance(workers, bool) or workers < 1
    ):
        raise MeshwrightError(f"{shown(workers)} workers are none", hint="give 1 or more")


def _job(job: Job | str | Path) -> Job:
    from meshwright.api import read_job

    return read_job(job)


def _evidence(
    given: Given, read: Sequence[Rank], job: Job | None, failed: list[Finding]
) -> Evidence:
    """Everything that is known, ranks in order; what cannot be read is added to `failed`."""
    pipeline = _tried(read_pipeline, given.pipelines, failed) if given.pipelines else None
    metrics = [_tried(read_metrics, path, failed) for path in given.metrics]
    memory = [_tried(read_snapshot, path, failed) for path in given.snapshots]
    nccl = [_tried(read_nccl_log, path, failed) for path in given.nccl_logs]
    ordered = sorted(read, key=_place)
    job = own_job(ordered) if job is None else job
    ranks, joined = _together(ordered, job)
    return Evidence(
        ranks=tuple(ranks),
        across=joined,
        pipeline=pipeline,
        metrics=next((m for m in metrics if m is not None), None),
        memory=tuple(
            m if job is None else with_prediction(m, job) for m in memory if m is not None
        ),
        nccl=tuple(n for n in nccl if n is not None),
        job=job,
    )


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


def _tried(read: Callable[[Any], Any], path: Any, failed: list[Finding]) -> Any:
    """What `read` makes of a file, None and a finding where it cannot."""
    first = str(path if not isinstance(path, tuple) else path[0])
    try:
        return read(path)
    except (MeshwrightError, OSError) as error:
        own = getattr(error, "findings", ())
        failed += own or (Finding(message=str(error), file=first, hint=getattr(error, "hint", "")),)
    except Exception as error:  # a fault of ours in one record must not cost the others
        text = harmless(f"internal error: {type(error).__name__}: {error}")
        failed.append(Finding(message=text, file=first, hint="this is a bug, please report it"))
    return None


def _few(findings: list[Finding]) -> list[Finding]:
    """As many findings as anyone reads, and how many more there are."""
    more = len(findings) - MOST_FINDINGS
    if more <= 0:
        return findings
    rest = Finding(message=f"{plural(more, 'more file')} cannot be read", file=findings[-1].file)
    return [*findings[:MOST_FINDINGS], rest]


def _failure(one: Answer) -> Finding:
    return Finding(message=one.error, file=one.file, hint=one.hint)


def _seen(one: Left) -> Finding:
    """A file that was passed over, where nothing else was found."""
    return Finding(message=one.reason, file=one.what, hint=HINT)


def _left(failure: Finding) -> Left:
    return Left(what=failure.file, count=1, time_us=0.0, reason=failure.message)


def _left_of(evidence: Evidence) -> Iterator[Left]:
    """What was left out of the files that were read."""
    paths = (rank.path for rank in evidence.ranks)
    parts = (*evidence.ranks, *paths, evidence.across, evidence.pipeline)
    for part in (*parts, *evidence.memory, *evidence.nccl):
        left: tuple[Left, ...] = part.left if part is not None else ()
        yield from left
    yield from (evidence.metrics or {}).get("left", ())


def merged(left: Iterable[Left]) -> tuple[Left, ...]:
    """What was left out for the same reason, of all ranks together."""
    found: dict[tuple[str, str], Left] = {}
    for one in left:
        before = found.get((one.what, one.reason))
        found[one.what, one.reason] = (
            one
            if before is None
            else replace(one, count=before.count + one.count, time_us=before.time_us + one.time_us)
        )
    return tuple(found.values())


def _is_empty(evidence: Evidence) -> bool:
    parts = (evidence.ranks, evidence.memory, evidence.nccl)
    return not any(parts) and evidence.pipeline is None and evidence.metrics is None
