"""A pipeline's operations as they ran."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.trace.columns import Left


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
    what the last stage and the slowest workers explain of it (arXiv 2505.05713): trem, tadd, tori,
    tideal in seconds, rem, add, Ms or Mw as shares. `replay_us` is the median of the replayed
    steps: measured less replayed is gaps between operations. `what_if_us` is the step with one
    thing changed, by words: "last stage as fast as the rest", "stage 2 as fast as the rest",
    "worker pp 0 dp 3 at the median", "the 4 slowest workers at the median", "stages alike",
    "microbatches alike", "pp communication free", "dp communication free", "no pipeline bubble",
    "no gaps between operations", "every operation at the mean of its kind". `slowest_workers` are
    the (pp, dp) that `mw` means.
    `chart` has the operations of one median step, for the timeline: (worker, kind, microbatch,
    start_us, dur_us), of at most 20,000 operations, replicas with slow workers first.
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
    by_worker: tuple[Worker, ...]
    slowest_worker: Worker | None
    duration_cv_within_stage: Mapping[str, float]
    compute_share_of_step_mean: float
    op_time_sum_us: Mapping[str, float]
    slowdown: float | None = None
    ms: Mapping[str, float] = field(default_factory=dict)
    mw: Mapping[str, float] = field(default_factory=dict)
    what_if_us: Mapping[str, float] = field(default_factory=dict)
    replay_us: float | None = None
    # what uneven "stages", slow "workers", uneven "microbatches" cost a step
    effects_us: Mapping[str, float] = field(default_factory=dict)
    # the step as "compute", "ideal_bubble", "imbalance", "waits"
    bubble_us: Mapping[str, float] = field(default_factory=dict)
    slowest_workers: tuple[tuple[int, int], ...] = ()
    chart: tuple[tuple[str, str, int, float, float], ...] = ()
    principal: str = ""
    # per rank and iteration, of "iterations"
    ranks: Mapping[str, Any] = field(default_factory=dict)
    left: tuple[Left, ...] = ()
