"""How unevenly stages, expert ranks and single steps compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.across.table import Doubles
    from meshwright.diagnose.across.work import Work
    from meshwright.diagnose.trace.columns import Longs

LEAST_STEPS = 3


def stage_compute_us(compute_us: Sequence[float], stage: Longs) -> tuple[float, ...]:
    """Computation of each stage that has a trace, in the order of stages.

    The median over its ranks: one that is slow is a straggler, and makes no heavy stage.
    """
    value = np.asarray(compute_us, float)
    return tuple(float(np.median(value[stage == s])) for s in np.unique(stage[stage >= 0]))


def imbalances(
    compute_us: Sequence[float],
    work: Work,
    *,
    stage: Longs,
    expert_groups: Sequence[Sequence[int]],
) -> Mapping[str, float]:
    """max/mean of computation; keys as in `Across.imbalance`, without what cannot be said.

    `stage` is each rank's pipeline coordinate, -1 unknown; `expert_groups` lists places of ranks.
    """
    found: dict[str, float] = {}
    stages = stage_compute_us(compute_us, stage)
    if len(stages) > 1:
        found["stage"] = _over_mean(np.array(stages))
    value = np.asarray(compute_us, float)
    experts = [_over_mean(value[list(group)]) for group in expert_groups if len(group) > 1]
    if experts:
        found["expert"] = float(np.mean(experts))
    sequence = _within_steps(work, stage)
    if sequence is not None:
        found["sequence"] = sequence
    return found


def _over_mean(value: Doubles) -> float:
    mean = float(value.mean())
    return float(value.max()) / mean if mean > 0 else 1.0


def _within_steps(work: Work, stage: Longs) -> float | None:
    """Mean over steps and stages of the slowest rank's computation over the mean of its stage.

    Each rank is measured against its own mean first: a rank that is always slow is a straggler.
    """
    compute = work.by_part_us["compute"]
    if compute.shape[1] < LEAST_STEPS or np.isnan(compute).all():
        return None
    ratios = []
    for s in np.unique(stage):
        own = compute[stage == s]
        own = own[~np.isnan(own).any(axis=1)]
        if len(own) > 1 and (own.mean(axis=1) > 0).all():
            relative = own / own.mean(axis=1, keepdims=True)
            ratios.append(relative.max(axis=0) / relative.mean(axis=0))
    return float(np.mean(np.concatenate(ratios))) if ratios else None


def step_variation(work: Work) -> float | None:
    """Standard deviation over mean of the steps, each as long as on its slowest rank."""
    known = ~np.isnan(work.step_us).all(axis=0)
    if np.count_nonzero(known) < 2:
        return None
    steps = np.nanmax(work.step_us[:, known], axis=0)
    return float(steps.std() / steps.mean()) if steps.mean() > 0 else None
