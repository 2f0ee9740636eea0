"""A pipeline's operations as they ran."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One (pipeline stage, data-parallel rank): medians over steps."""

    pp: int
    dp: int
    compute_us: float
    over_median: float
    idle_pct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What a trace of operations says. Field names are those of the record.

    `slowdown` is the step over the one with every operation at the mean of its kind; `ms` and `mw`
    the shares of it that the last stage and the slowest workers explain (arXiv 2505.05713).
    `chart` has the operations of one median step, for the timeline: (worker, kind, microbatch,
    start_us, dur_us).
    """

    source: str  # "operations" or "iterations"
    files: tuple[str, ...]
    meta: Mapping[str, Any]
    p: int
    m: int
    v: int
    dp: int
    steps: int
    step_span_us_median: float
    ideal_bubble_pct: float
    mean_idle_pct_of_step: float
    compute_us_median_by_stage: Mapping[str, float]
    stage_max_over_mean: float
    workers: tuple[Worker, ...]
    slowest_worker: Worker | None
    duration_cv_within_stage: Mapping[str, float]
    compute_share_of_step_mean: float
    op_time_sum_us: Mapping[str, float]
    slowdown: float | None = None
    ms: Mapping[str, float] = field(default_factory=dict)
    mw: Mapping[str, float] = field(default_factory=dict)
    what_if_us: Mapping[str, float] = field(default_factory=dict)
    chart: tuple[tuple[str, str, int, float, float], ...] = ()
    principal: str = ""
    ranks: Mapping[str, Any] = field(
        default_factory=dict
    )  # per rank and iteration, of "iterations"
