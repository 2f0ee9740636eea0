"""Quantities of a pipeline's operations that need no model: sums, medians, spreads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.pipeline.noun import Worker
from meshwright.diagnose.pipeline.table import SMALL, SPARSE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.diagnose.pipeline.operations import Floats, Longs, Operations

COMPUTE = ("forward-compute", "backward-compute", "weight-compute")


MOST_STAGES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Compute time of every worker in every step, microseconds.

    `compute_us` has shape [workers, steps]; `places` are the (pp, dp) of the workers, `steps` the
    numbers of the steps, `span_us` from the first start to the last end of each of them.
    """

    places: NDArray[np.int64]
    steps: Longs
    span_us: Floats
    compute_us: Floats

    @property
    def idle(self) -> Floats:
        """Share of each step that each worker does not compute in."""
        idle: Floats = 1.0 - self.compute_us / np.maximum(self.span_us, 1e-9)
        return idle


def grid_of(operations: Operations) -> Grid | None:
    """Compute time by worker and step; None where these are more than a pipeline has."""
    steps, at = np.unique(operations.step, return_inverse=True)
    pairs = np.stack([operations.pp, operations.dp], axis=1)
    places, worker = np.unique(pairs, axis=0, return_inverse=True)
    sparse = len(places) * len(steps) > SPARSE * len(operations) + SMALL
    if sparse or len(np.unique(operations.pp)) > MOST_STAGES:
        return None
    computes = operations.of(*COMPUTE)
    compute_us = np.zeros((len(places), len(steps)))
    place = (worker.reshape(-1)[computes], at[computes])
    np.add.at(compute_us, place, operations.dur_us[computes])
    first = np.full(len(steps), np.inf)
    last = np.full(len(steps), -np.inf)
    np.minimum.at(first, at, operations.start_us)
    np.maximum.at(last, at, operations.start_us + operations.dur_us)
    return Grid(places=places, steps=steps, span_us=last - first, compute_us=compute_us)


def workers_of(grid: Grid) -> tuple[Worker, ...]:
    """Every worker's medians over steps, in the order of (pp, dp)."""
    compute = np.median(grid.compute_us, axis=1)
    idle = np.median(grid.idle, axis=1)
    usual = float(np.median(compute))
    return tuple(
        Worker(
            pp=int(pp),
            dp=int(dp),
            compute_us=float(us),
            over_median=float(us) / usual if usual else 1.0,
            idle_pct=100.0 * float(share),
        )
        for (pp, dp), us, share in zip(grid.places, compute, idle, strict=True)
    )


def by_stage_us(workers: tuple[Worker, ...]) -> dict[str, float]:
    """Mean over the workers of a stage of their compute time."""
    by_stage: dict[str, list[float]] = {}
    for worker in sorted(workers, key=lambda w: w.pp):
        by_stage.setdefault(str(worker.pp), []).append(worker.compute_us)
    return {stage: float(np.mean(times)) for stage, times in by_stage.items()}


def spread_within_stage(operations: Operations) -> dict[str, float]:
    """Standard deviation over mean of the durations of a kind of compute, by "kind@ppN"."""
    out: dict[str, float] = {}
    for kind in sorted(COMPUTE):
        for stage in np.unique(operations.pp):
            dur = operations.dur_us[operations.of(kind) & (operations.pp == stage)]
            if len(dur) and dur.mean() > 0:
                out[f"{kind}@pp{stage}"] = float(dur.std() / dur.mean())
    return out


def sums_us(operations: Operations) -> Mapping[str, float]:
    """Time of all operations of each kind, largest first."""
    sums = np.bincount(operations.kind, weights=operations.dur_us, minlength=len(operations.kinds))
    pairs = zip(operations.kinds, map(float, sums), strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))
