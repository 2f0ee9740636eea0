"""What a pipeline's step loses most to, in words."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.diagnose.pipeline.noun import Pipeline

STRAGGLING = 1.10  # slowdown from which a run straggles (arXiv 2505.05713, section 3)
LEAST = 0.10  # share of the step that communication or a bubble must be to be principal
LOPSIDED = 1.05  # largest stage over the mean from which a bubble's imbalance is named
COMMUNICATION = {
    "dp communication free": "communication: collectives over data-parallel ranks",
    "pp communication free": "communication: transfers between pipeline stages",
}


def principal_of(pipeline: Pipeline) -> str:
    """The largest cause of a run that straggles; else communication, the bubble, or computing.

    A run straggles from a slowdown of 1.1; its causes are weighed by `effects_us`. Communication
    is named where a step without it would be a tenth shorter, the bubble where a tenth of the step
    is idle.
    """
    effects = pipeline.effects_us
    if (pipeline.slowdown or 0.0) >= STRAGGLING and any(effects.values()):
        return _straggling(pipeline, max(effects, key=lambda name: effects[name]))
    step_us = pipeline.step_span_us_median
    gains = {
        text: 1.0 - pipeline.what_if_us.get(name, step_us) / step_us
        for name, text in COMMUNICATION.items()
        if step_us > 0
    }
    text = max(gains, key=lambda name: gains[name], default="")
    if gains and gains[text] >= LEAST:
        return text
    if pipeline.p > 1 and pipeline.mean_idle_pct_of_step >= 100 * LEAST:
        return "pipeline bubble (model structure / schedule)" + _lopsided(pipeline)
    return "compute"


def _straggling(pipeline: Pipeline, cause: str) -> str:
    if cause == "microbatches":
        return "data processing: sequence-length imbalance between microbatches"
    if cause == "stages":
        return _of_stages(pipeline)
    (pp, dp), *others = pipeline.slowest_workers
    if others:
        count = len(pipeline.slowest_workers)
        return f"straggler: {count} workers, (pp {pp}, dp {dp}) the slowest"
    over = next((w.over_median for w in pipeline.by_worker if (w.pp, w.dp) == (pp, dp)), 1.0)
    return f"straggler: one worker (pp {pp}, dp {dp}) {over:.2f}x the median"


def _of_stages(pipeline: Pipeline) -> str:
    stages = pipeline.compute_us_median_by_stage
    heaviest = _heaviest(pipeline)
    others = [us for name, us in stages.items() if name != heaviest]
    over = stages[heaviest] / fmean(others) if others and fmean(others) > 0 else 1.0
    last = heaviest == list(stages)[-1]
    which = "last pipeline stage" if last else f"pipeline stage {heaviest}"
    return f"model structure: {which} {over:.1f}x the others"


def _heaviest(pipeline: Pipeline) -> str:
    stages = pipeline.compute_us_median_by_stage
    return max(stages, key=lambda stage: stages[stage])


def _lopsided(pipeline: Pipeline) -> str:
    if pipeline.stage_max_over_mean < LOPSIDED:
        return ""
    heaviest = _heaviest(pipeline)
    last = heaviest == list(pipeline.compute_us_median_by_stage)[-1]
    return f", with {'last-stage' if last else f'stage-{heaviest}'} imbalance"
