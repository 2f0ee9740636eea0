"""What the record says beside the fields of a noun: names that follow from others."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.split.principal import principal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.diagnose.pipeline.noun import Pipeline
    from meshwright.diagnose.rank import Rank, Step


def no_gpu_events(rank: Rank) -> bool:
    """The trace has no work of a device."""
    return rank.gpu_span is None


def host_steps(rank: Rank) -> tuple[Step, ...]:
    """The steps of a trace without device events, by the host's clock."""
    return rank.cpu_steps if no_gpu_events(rank) else ()


def principal_by_trace_only_rule(rank: Rank) -> str:
    """The largest of `lost_shares_pct`, whatever the host did when it launched late."""
    return principal_of(rank.lost_shares_pct)[0]


def worker_count(pipeline: Pipeline) -> int:
    """Workers with operations in the trace."""
    return len(pipeline.by_worker)


def step_ms(pipeline: Pipeline) -> float:
    """`step_span_us_median` in milliseconds."""
    return pipeline.step_span_us_median / 1e3


def stage_imbalance(pipeline: Pipeline) -> float:
    """`stage_max_over_mean` under the name that it has for iterations."""
    return pipeline.stage_max_over_mean


# by noun: names in the record, each with its annotation and what makes it
DERIVED: Mapping[str, Mapping[str, tuple[str, Callable[[Any], Any]]]] = MappingProxyType(
    {
        "Rank": {
            "no_gpu_events": ("bool", no_gpu_events),
            "steps": ("tuple[Step, ...]", host_steps),
            "principal_by_trace_only_rule": ("str", principal_by_trace_only_rule),
        },
        "Pipeline": {
            "workers": ("int", worker_count),
            "step_ms": ("float", step_ms),
            "stage_imbalance_max_over_mean": ("float", stage_imbalance),
        },
    }
)
