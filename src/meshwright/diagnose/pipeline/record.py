"""A pipeline's figures under the names of the machine record."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.diagnose.pipeline.noun import Pipeline

BOTH = (
    "principal",
    "p",
    "m",
    "v",
    "ideal_bubble_pct",
    "mean_idle_pct_of_step",
    "slowdown",
    "ms",
    "mw",
    "what_if_us",
    "replay_us",
    "effects_us",
    "bubble_us",
    "slowest_workers",
    "steps",
)
OPERATIONS = (
    "meta",
    "step_span_us_median",
    "compute_us_median_by_stage",
    "stage_max_over_mean",
    "duration_cv_within_stage",
    "compute_share_of_step_mean",
    "op_time_sum_us",
)


def pipeline_record(pipeline: Pipeline) -> dict[str, Any]:
    """Names and values; microseconds, percent, shares and ratios as their names say."""
    out = {name: getattr(pipeline, name) for name in BOTH}
    out["source"] = pipeline.source
    if pipeline.source == "operations":
        return out | _of_operations(pipeline)
    return out | {
        "step_ms": pipeline.step_span_us_median / 1e3,
        "stage_imbalance_max_over_mean": pipeline.stage_max_over_mean,
        "ranks": pipeline.ranks,
    }


def _of_operations(pipeline: Pipeline) -> dict[str, Any]:
    out = {name: getattr(pipeline, name) for name in OPERATIONS}
    slowest = pipeline.slowest_worker
    return out | {
        "dp": pipeline.dp,
        "workers": len(pipeline.workers),
        "slowest_worker": {
            name: value
            for name, value in (dataclasses.asdict(slowest) if slowest else {}).items()
            if name != "idle_pct"
        },
    }
