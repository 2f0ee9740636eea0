"""From a model and a cluster to ranked plans: one sweep, then the explanation around it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

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
    from meshwright.search.kept import Kept
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
    calibration = calibration or default_calibration()
    job = Job(model=model, cluster=cluster, workload=workload, plan=settings.base, stack=stack)
    limit = cluster.gpu.memory_bytes * memory_share
    candidates = space(model, cluster, workload, settings)
    outcome = sweep(
        job,
        candidates,
        aim=Aim(limit_bytes=limit, objective=objective),
        calibration=calibration,
        progress=progress,
    )
    rows = distinct_candidates(job, outcome.best, top, settings, calibration)
    if len(rows) < top:  # too few that differ much: those that differ in details
        rows = distinct_candidates(job, outcome.variants, top, settings, calibration)
    if objective == "cost":
        share = memory_share
        rows = _cheapest(job, rows, share, settings=settings, top=top, calibration=calibration)
    result = Result(
        job=job,
        rows=rows,
        candidates=outcome.candidates,
        costed=outcome.costed,
        feasible=outcome.feasible,
        rejected=dict(outcome.rejected.most_common()),
        frontier=distinct_candidates(job, outcome.frontier, 8, settings, calibration),
        misses=misses(job, outcome, settings, limit, calibration=calibration),
        assumptions=assumed(job),
        objective=objective,
        limit_bytes=limit,
        notes=_notes(outcome),
    )
    if outcome.interrupted:
        return replace(result, seconds=time.process_time() - started)
    if not rows:
        result = replace(
            result,
            refusals=() if outcome.costed else refusals(job, candidates),
            relaxations=relaxations(job, settings, limit_bytes=limit, calibration=calibration),
            minimum_gpus=minimum_gpus(
                job, settings, outcome, memory_share=memory_share, calibration=calibration
            ),
        )
    elif sensitivity and outcome.best is not None and objective != "memory":
        found = swings(job, outcome.best, settings, calibration)
        result = replace(result, sensitivity=found)
    return replace(result, seconds=time.process_time() - started)


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


def _cheapest(
    job: Job,
    rows: tuple[Candidate, ...],
    memory_share: float,
    *,
    settings: Options,
    top: int,
    calibration: Calibration,
) -> tuple[Candidate, ...]:
    """The same search on halves, quarters, ... of the cluster; fewest GPU-seconds a token first."""
    found = list(rows)
    nodes = job.cluster.num_nodes // 2
    while nodes >= 1:
        cluster = replace(job.cluster, num_gpus=nodes * job.cluster.gpus_per_node)
        smaller = replace(job, cluster=cluster)
        outcome = sweep(
            smaller,
            space(job.model, cluster, job.workload, settings),
            aim=Aim(limit_bytes=cluster.gpu.memory_bytes * memory_share),
            calibration=calibration,
        )
        if outcome.best is None:
            break
        found += distinct_candidates(smaller, outcome.best, top, settings, calibration)
        nodes //= 2
    return tuple(sorted(found, key=lambda c: -c.tokens_per_s_per_gpu)[:top])
