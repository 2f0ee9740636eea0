"""What a pipeline's step loses most to, in words."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.diagnose.pipeline.noun import Pipeline

LEAST = 0.10  # share of the step that a cause must be worth to be called principal
LOPSIDED = 1.05  # largest stage over the mean from which a bubble's imbalance is named


def principal_of(pipeline: Pipeline) -> str:
    """The change that is worth most by the what-ifs, if it is worth a tenth of the step.

    Else the bubble where a tenth of the step is idle, else "compute".
    """
    step_us = pipeline.step_span_us_median
    gains = {
        _cause(pipeline, name): 1.0 - us / step_us
        for name, us in pipeline.what_if_us.items()
        if step_us > 0 and _cause(pipeline, name)
    }
    best = max(gains, key=lambda cause: gains[cause], default="")
    if best and gains[best] >= LEAST:
        return best
    if pipeline.p > 1 and pipeline.mean_idle_pct_of_step >= 100 * LEAST:
        return "pipeline bubble (model structure / schedule)" + _lopsided(pipeline)
    return "compute"


def _cause(pipeline: Pipeline, change: str) -> str:
    """What a change speaks of; "" for changes that no cause follows from."""
    if change.startswith("worker "):
        _, _, pp, _, dp, *_ = change.split()
        over = _over_others(pipeline, int(pp), int(dp))
        return f"straggler: one worker (pp {pp}, dp {dp}) {over:.2f}x the median"
    if change.endswith("slowest workers at the median"):
        count, worst = change.split()[1], pipeline.slowest_workers[0]
        return f"stragglers: {count} workers, (pp {worst[0]}, dp {worst[1]}) the slowest"
    if change.endswith("as fast as the rest"):
        last = change.startswith("last")
        stage = str(pipeline.p - 1) if last else change.split()[1]
        over = _stage_over_others(pipeline, stage)
        which = "last pipeline stage" if last else f"pipeline stage {stage}"
        return f"model structure: {which} {over:.1f}x the others"
    if change == "microbatches alike":
        return "data processing: microbatches of uneven length (sequence lengths)"
    if change == "dp communication free":
        return "communication: collectives over data-parallel ranks"
    if change == "pp communication free":
        return "communication: transfers between pipeline stages"
    return ""


def _over_others(pipeline: Pipeline, pp: int, dp: int) -> float:
    return next((w.over_median for w in pipeline.workers if (w.pp, w.dp) == (pp, dp)), 1.0)


def _stage_over_others(pipeline: Pipeline, stage: str) -> float:
    stages = pipeline.compute_us_median_by_stage
    others = [us for name, us in stages.items() if name != stage]
    return stages.get(stage, 0.0) / fmean(others) if others and fmean(others) > 0 else 1.0


def _lopsided(pipeline: Pipeline) -> str:
    stages = pipeline.compute_us_median_by_stage
    if pipeline.stage_max_over_mean < LOPSIDED:
        return ""
    heaviest = max(stages, key=lambda stage: stages[stage])
    which = "last-stage" if heaviest == list(stages)[-1] else f"stage-{heaviest}"
    return f", with {which} imbalance"
