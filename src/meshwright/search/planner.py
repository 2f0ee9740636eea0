"""From a model and a cluster to ranked plans: one sweep, then the explanation around it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.cost.calibration import default_calibration
from meshwright.cost.predict import predict
from meshwright.plan.job import Job, Workload
from meshwright.search.infeasible import minimum_gpus, misses, plan_at, refusals, relaxations
from meshwright.search.result import Candidate, Result, assumed, describe
from meshwright.search.sensitivity import swings
from meshwright.search.space import Options, space
from meshwright.search.sweep import Aim, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.cost.calibration import Calibration
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.plan import Plan
    from meshwright.search.kept import Kept
    from meshwright.search.space import Space
    from meshwright.search.sweep import Sweep


def plan_job(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    settings: Options | None = None,
    top: int = 5,
    objective: str = "throughput",
    stack: str = "default",
    memory_share: float = 1.0,
    calibration: Calibration | None = None,
    progress: Callable[[int, int], None] | None = None,
    sensitivity: bool = True,
) -> Result:
    """Search all plans for the cluster and return the best `top` distinct ones with reasons.

    `objective` is "throughput", "memory" or "cost" (which also tries fewer nodes). `memory_share`
    is the part of the device's memory that a plan's upper bound may fill. Raises MeshwrightError
    for unknown plan fields; an infeasible search is a Result without rows.
    """
    started = time.process_time()
    settings = settings or Options()
    job = Job(model=model, cluster=cluster, workload=workload, plan=settings.base, stack=stack)
    question = _Question(
        job=job,
        candidates=space(model, cluster, workload, settings),
        aim=Aim(limit_bytes=cluster.gpu.memory_bytes * memory_share, objective=objective),
        calibration=calibration or default_calibration(),
        memory_share=memory_share,
    )
    outcome = sweep(
        job,
        question.candidates,
        aim=question.aim,
        calibration=question.calibration,
        progress=progress,
    )
    result = _result(question, outcome, top)
    if not outcome.interrupted:
        result = _explained(question, outcome, result, sensitivity=sensitivity)
    return replace(result, seconds=time.process_time() - started)


def fastest(
    job: Job, settings: Options, *, accept: Callable[[Plan], bool] = lambda _: True
) -> Candidate | None:
    """The fastest plan that fits and that `accept` takes, None where there is none.

    The same search as `plan_job`, without the reasons and the table: only the winner is predicted.
    """
    calibration = default_calibration()
    the_space = space(job.model, job.cluster, job.workload, settings)
    aim = Aim(limit_bytes=job.cluster.gpu.memory_bytes, objective="throughput")
    kept = sweep(job, the_space, aim=aim, calibration=calibration).best
    if kept is None:
        return None
    plans = (plan_at(settings.base, kept, index) for index in range(len(kept)))
    chosen = next((plan for plan in plans if accept(plan)), None)
    if chosen is None:
        return None
    best = job.with_plan(chosen)
    return Candidate(job=best, prediction=predict(best, calibration))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is searched, for what, and by which cost model."""

    job: Job
    candidates: Space
    aim: Aim
    calibration: Calibration
    memory_share: float

    @property
    def settings(self) -> Options:
        """The pins and bans."""
        return self.candidates.settings


def _result(question: _Question, outcome: Sweep, top: int) -> Result:
    """The outcome of a sweep with its best plans predicted in full."""
    job, settings, calibration = question.job, question.settings, question.calibration
    rows = distinct_candidates(job, outcome.best, top, settings, calibration)
    if len(rows) < top:  # too few that differ much: those that differ in details
        rows = distinct_candidates(job, outcome.variants, top, settings, calibration)
    if question.aim.objective == "cost":
        rows = _cheapest(question, rows, top)
    return Result(
        job=job,
        rows=rows,
        candidates=outcome.candidates,
        costed=outcome.costed,
        feasible=outcome.feasible,
        rejected=dict(outcome.rejected.most_common()),
        frontier=distinct_candidates(job, outcome.frontier, 8, settings, calibration),
        misses=misses(job, outcome, settings, question.aim.limit_bytes, calibration=calibration),
        assumptions=assumed(job),
        objective=question.aim.objective,
        limit_bytes=question.aim.limit_bytes,
        interrupted=outcome.interrupted,
        notes=_notes(outcome),
    )


def _explained(question: _Question, outcome: Sweep, result: Result, *, sensitivity: bool) -> Result:
    """The result with what stands in the way, or with what would change the winner.

    A KeyboardInterrupt leaves the explanation out.
    """
    try:
        if not result.rows:
            return _with_obstacles(question, outcome, result)
        if sensitivity and outcome.best is not None and question.aim.objective == "throughput":
            found = swings(question.job, outcome.best, question.settings, question.calibration)
            return replace(result, sensitivity=found)
    except KeyboardInterrupt:
        note = "stopped early: the explanation is left out"
        return replace(result, interrupted=True, notes=(*result.notes, note))
    return result


def _with_obstacles(question: _Question, outcome: Sweep, result: Result) -> Result:
    """The result of a search that found nothing, with what stands in the way."""
    job, settings, calibration = question.job, question.settings, question.calibration
    return replace(
        result,
        refusals=() if outcome.costed else refusals(job, question.candidates),
        relaxations=relaxations(
            job, settings, limit_bytes=question.aim.limit_bytes, calibration=calibration
        ),
        minimum_gpus=minimum_gpus(
            job, settings, outcome, memory_share=question.memory_share, calibration=calibration
        ),
    )


def _notes(outcome: Sweep) -> tuple[str, ...]:
    """What a reader must know about the search itself."""
    if not outcome.interrupted:
        return ()
    return (
        f"stopped early: the best of the {outcome.costed:,} plans costed until then, not of all",
    )


def distinct_candidates(
    job: Job, kept: Kept | None, top: int, settings: Options, calibration: Calibration
) -> tuple[Candidate, ...]:
    """The first `top` plans that differ in what the table shows, each fully predicted."""
    if kept is None:
        return ()
    seen: set[str] = set()
    rows: list[Candidate] = []
    for index in range(len(kept)):
        plan = plan_at(settings.base, kept, index)
        key = describe(plan)
        if key in seen:
            continue
        seen.add(key)
        one = job.with_plan(plan)
        rows.append(Candidate(job=one, prediction=predict(one, calibration)))
        if len(rows) == top:
            break
    return tuple(rows)


def _cheapest(question: _Question, rows: tuple[Candidate, ...], top: int) -> tuple[Candidate, ...]:
    """The same search on halves, quarters, ... of the cluster; fewest GPU-seconds a token first."""
    job, settings, calibration = question.job, question.settings, question.calibration
    found = list(rows)
    nodes = job.cluster.num_nodes // 2
    while nodes >= 1:
        cluster = replace(job.cluster, num_gpus=nodes * job.cluster.gpus_per_node)
        smaller = replace(job, cluster=cluster)
        outcome = sweep(
            smaller,
            space(job.model, cluster, job.workload, settings),
            aim=Aim(limit_bytes=question.aim.limit_bytes),
            calibration=calibration,
        )
        if outcome.best is None:
            break
        found += distinct_candidates(smaller, outcome.best, top, settings, calibration)
        nodes //= 2
    return tuple(sorted(found, key=lambda c: -c.tokens_per_s_per_gpu)[:top])
