"""A pipeline's trace, of operations or of iterations, accounted for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.diagnose.pipeline.effects import effects_us
from meshwright.diagnose.pipeline.ideal import bubble_parts_us, ideal_bubble
from meshwright.diagnose.pipeline.iterations import (
    HINT,
    Iteration,
    chunks_of,
    config_beside,
    median,
    read_rank,
)
from meshwright.diagnose.pipeline.measure import (
    COMPUTE,
    Grid,
    by_stage_us,
    grid_of,
    spread_within_stage,
    sums_us,
    workers_of,
)
from meshwright.diagnose.pipeline.meta import meta_beside, size_of
from meshwright.diagnose.pipeline.noun import Pipeline, Worker
from meshwright.diagnose.pipeline.operations import columns_of, read_operations
from meshwright.diagnose.pipeline.table import table_of
from meshwright.diagnose.pipeline.verdict import principal_of
from meshwright.diagnose.pipeline.what_if import (
    has_computes,
    last_stage,
    of_workers,
    replay_of,
    slowdown,
    slowest_workers,
    what_ifs_us,
)
from meshwright.diagnose.text import refusal
from meshwright.diagnose.trace.columns import Left
from meshwright.diagnose.trace.source import text_pieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.pipeline.operations import Operations

WARM_UP = 2  # iterations that are left out where at least as many remain
SAMPLE = 1 << 16
CHARTED = 20_000  # operations of one step that are kept for a picture
GAPS = 0.03  # share of a step between operations from which it is told


def read_pipeline(paths: Sequence[str | Path]) -> Pipeline:
    """What traces of a pipeline say, with a replay of its steps; times in microseconds.

    `paths` are the files of one run: one of operations (timeline-*.json.gz, with meta-*.yaml beside
    it or not), or those of iterations, one for each rank (pp_rank_*.json). Raises `InvalidInput`
    for files that are neither.
    """
    files = [Path(path) for path in paths]
    if not files:
        raise refusal("", "no file is given", hint=HINT)
    if any(map(_of_iterations, files)):
        return _from_iterations(files)
    return _from_operations(files)


def _of_iterations(path: Path) -> bool:
    sample = b""
    for piece in text_pieces(path, told=[]):
        sample += piece
        if len(sample) >= SAMPLE:
            break
    return sample.lstrip()[:1] == b"{" and b'"fwd_start"' in sample[:SAMPLE]


def _from_operations(files: list[Path]) -> Pipeline:
    operations = read_operations(files)
    meta = meta_beside(files[0])
    grid = _grid(operations, files[0])
    chunks = int(operations.chunk.max(initial=0)) + 1
    v = max(size_of(meta, "vpp_size"), chunks, 1)
    workers = workers_of(grid)
    pipeline = Pipeline(
        source="operations",
        files=tuple(map(str, files)),
        meta=meta,
        p=len({w.pp for w in workers}),
        m=_microbatches(operations, v),
        v=v,
        dp=len({w.dp for w in workers}),
        steps=len(grid.steps),
        step_span_us_median=float(np.median(grid.span_us)),
        left=operations.left,
        **_computed(grid, workers, operations),
    )
    return _judged(_replayed(pipeline, operations))


def _grid(operations: Operations, path: Path) -> Grid:
    grid = grid_of(operations)
    if grid is None:
        raise refusal(path, "has steps and workers that are none of a pipeline", hint=HINT)
    return grid


def _computed(grid: Grid, workers: tuple[Worker, ...], operations: Operations) -> dict[str, Any]:
    """What both layouts say of computing."""
    stages = by_stage_us(workers)
    mean = float(np.mean(list(stages.values())))
    share = float(
        np.mean([w.compute_us for w in workers]) / max(float(np.median(grid.span_us)), 1e-9)
    )
    return {
        "ideal_bubble_pct": 0.0,
        "mean_idle_pct_of_step": 100.0 * (1.0 - share),
        "compute_us_median_by_stage": stages,
        "stage_max_over_mean": max(stages.values()) / mean if mean else 1.0,
        "by_worker": workers,
        "slowest_worker": max(workers, key=lambda w: w.compute_us),
        "duration_cv_within_stage": spread_within_stage(operations),
        "compute_share_of_step_mean": share,
        "op_time_sum_us": sums_us(operations),
    }


def _microbatches(operations: Operations, v: int) -> int:
    """Microbatches of a step: the most forwards of a worker, over its chunks."""
    forwards = operations.seq[operations.of(COMPUTE[0])]
    return max((int(forwards.max(initial=-1)) + 1) // v, 0)


def _from_iterations(files: list[Path]) -> Pipeline:
    left: list[Left] = []
    ranks = _numbered([read_rank(file, left) for file in files])
    config = config_beside(files[0])
    v = size_of(config, "vp_size", "vpp_size") or chunks_of(ranks)
    kept, warm = _settled(ranks)
    if warm:
        reason = f"the first {WARM_UP} warm up"
        left.append(Left(what="iterations", count=warm, time_us=0.0, reason=reason))
    operations = _operations(kept, v)
    grid = _grid(operations, files[0])
    totals = {rank: median([i.total_ms for i in its]) for rank, its in kept.items()}
    step_us = 1e3 * max(totals.values())
    grid = dataclasses.replace(grid, span_us=np.full_like(grid.span_us, step_us))
    workers = workers_of(grid)
    pipeline = Pipeline(
        source="iterations",
        files=tuple(map(str, files)),
        meta={str(k): str(x) for k, x in config.items() if isinstance(x, str | int | float)},
        p=len(ranks),
        m=_microbatches(operations, v),
        v=v,
        dp=1,
        steps=max(len(its) for its in kept.values()),
        step_span_us_median=step_us,
        ranks={str(rank): _record(its, kept[rank]) for rank, its in ranks.items()},
        left=tuple(left),
        **_computed(grid, workers, operations),
    )
    return _judged(_replayed(pipeline, operations))


def _numbered(
    found: Sequence[tuple[int, tuple[Iteration, ...]]],
) -> dict[int, tuple[Iteration, ...]]:
    """Iterations by rank; by the order of the files where their names have no distinct numbers."""
    numbers = [rank for rank, _ in found]
    distinct = len(set(numbers)) == len(numbers) and -1 not in numbers
    pairs = [(rank if distinct else n, its) for n, (rank, its) in enumerate(found)]
    return dict(sorted(pairs, key=lambda pair: pair[0]))


def _settled(
    ranks: Mapping[int, tuple[Iteration, ...]],
) -> tuple[dict[int, tuple[Iteration, ...]], int]:
    """The iterations after the first two, where that leaves at least two; how many went."""
    if min(map(len, ranks.values())) < 2 * WARM_UP:
        return dict(ranks), 0
    return {rank: its[WARM_UP:] for rank, its in ranks.items()}, WARM_UP * len(ranks)


def _operations(ranks: Mapping[int, tuple[Iteration, ...]], v: int) -> Operations:
    p, rows = len(ranks), []
    for stage, its in enumerate(ranks.values()):
        for iteration in its:
            seen: dict[str, int] = {}
            for kind, mb, chunk, start, end in iteration.work:
                at = seen[kind] = seen.get(kind, -1) + 1
                if mb < 0 or chunk < 0:
                    chunk = at // p % v if kind == COMPUTE[0] else v - 1 - at // p % v
                    mb = at // (p * v) * p + at % p if v > 1 else at
                where = (kind, iteration.number, 0, stage, 0, chunk, mb)
                rows.append((*where, 1e3 * start, 1e3 * (end - start)))
    return columns_of(rows)


def _record(every: Sequence[Iteration], kept: Sequence[Iteration]) -> dict[str, Any]:
    memory = [i.memory_gb for i in every if i.memory_gb is not None]
    return {
        "median_total_ms": median([i.total_ms for i in kept]),
        "median_busy_ms": median([i.busy_ms for i in kept]),
        "median_idle_pct": median([i.idle_pct for i in kept]),
        "median_lead_in_ms": median([i.lead_in_ms for i in kept]),
        "memory_gb": max(memory, default=None),
        "iterations": [
            {
                "iter": i.number,
                "total_ms": i.total_ms,
                "busy_ms": i.busy_ms,
                "idle_pct": i.idle_pct,
                "lead_in_ms": i.lead_in_ms,
            }
            for i in every
        ],
    }


def _replayed(pipeline: Pipeline, operations: Operations) -> Pipeline:
    """With what a replay of the steps says, or with the reason why none is possible."""
    table = table_of(operations)
    run = replay_of(table) if table is not None else None
    if table is None or run is None:
        reason = "no step has all of its computes on all workers"
        if table is not None and has_computes(table):
            reason = "the order of the operations contradicts itself"
        lost = Left(what="replay of the steps", count=pipeline.steps, time_us=0.0, reason=reason)
        return dataclasses.replace(pipeline, left=(*pipeline.left, lost))
    slowest = slowest_workers(run)
    last, worst = last_stage(run), of_workers(run, slowest)
    at = int(np.argsort(table.span_us, kind="stable")[(len(table.steps) - 1) // 2])
    return dataclasses.replace(
        pipeline,
        slowdown=slowdown(run),
        ms={**dataclasses.asdict(last), "Ms": last.rem},
        mw={**dataclasses.asdict(worst), "Mw": worst.rem},
        slowest_workers=tuple((pp, table.dps[dp]) for pp, dp in slowest),
        what_if_us=what_ifs_us(run, slowest),
        effects_us=effects_us(run, slowest),
        replay_us=float(np.median(run.actual_us)),
        chart=_chart(operations, table.steps[at], [table.dps[dp] for _, dp in slowest]),
        left=(*pipeline.left, *table.left),
    )


def _chart(
    operations: Operations, step: int, slowest: Sequence[int]
) -> tuple[tuple[str, str, int, float, float], ...]:
    """One step's operations, of as many replicas as a picture holds, `slowest` ones first."""
    rows = np.flatnonzero(operations.step == step)
    origin = operations.start_us[rows].min()
    dps, counts = np.unique(operations.dp[rows], return_counts=True)
    order = sorted(zip(dps, counts, strict=True), key=lambda pair: (pair[0] not in slowest, pair))
    room = np.cumsum([count for _, count in order]) <= CHARTED
    shown = [dp for (dp, _), fits in zip(order, room, strict=True) if fits]
    rows = rows[np.isin(operations.dp[rows], shown or [order[0][0]])][:CHARTED]
    return tuple(
        (
            f"pp {operations.pp[r]} dp {operations.dp[r]}",
            operations.kinds[operations.kind[r]],
            int(operations.mb[r]),
            float(operations.start_us[r] - origin),
            float(operations.dur_us[r]),
        )
        for r in rows
    )


def _judged(pipeline: Pipeline) -> Pipeline:
    """With its bubble taken apart, and the verdict."""
    p, m, v = pipeline.p, pipeline.m, pipeline.v
    replicas: dict[int, list[float]] = {}
    for worker in pipeline.by_worker:
        replicas.setdefault(worker.dp, []).append(worker.compute_us)
    step_us = pipeline.step_span_us_median
    pipeline = dataclasses.replace(
        pipeline,
        ideal_bubble_pct=100.0 * ideal_bubble(p, m, v),
        bubble_us=bubble_parts_us(step_us, list(replicas.values()), m=m, v=v),
        left=(*pipeline.left, *_unexplained(pipeline)),
    )
    return dataclasses.replace(pipeline, principal=principal_of(pipeline))


def _unexplained(pipeline: Pipeline) -> tuple[Left, ...]:
    """Time of the steps in which nothing that was recorded keeps the others waiting."""
    if pipeline.replay_us is None:
        return ()
    gap_us = pipeline.step_span_us_median - pipeline.replay_us
    if abs(gap_us) <= GAPS * pipeline.step_span_us_median:
        return ()
    reason = (
        "no operation of the trace accounts for it" if gap_us > 0 else "the replay takes longer"
    )
    what, count = "time between operations", pipeline.steps
    return (Left(what=what, count=count, time_us=abs(gap_us) * count, reason=reason),)
