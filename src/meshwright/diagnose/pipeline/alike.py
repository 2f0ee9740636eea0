"""Work of computes with one difference between them taken away: of stages, workers, microbatches.

All take and give work of shape [nodes, dps, steps], microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.pipeline.graph import COMPUTES

if TYPE_CHECKING:
    from meshwright.diagnose.pipeline.operations import Floats
    from meshwright.diagnose.pipeline.what_if import Replay


def of_other_stages(run: Replay, work: Floats, pp: int) -> Floats:
    """A stage's computes scaled down to what is typical of the other stages.

    Typical is the lower median over data-parallel ranks, so that one slow worker does not make
    its stage a slow one.
    """
    out = work.copy()
    for kind in COMPUTES:
        typical = _typical(run, work, kind)
        own = typical.pop(pp, 0.0)
        if own > 0 and typical:
            which = (run.kinds == kind) & (run.stages == pp)
            out[which] *= min(float(np.mean(list(typical.values()))) / own, 1.0)
    return out


def _typical(run: Replay, work: Floats, kind: str) -> dict[int, float]:
    """Stage -> mean duration of a compute on its typical data-parallel rank."""
    out: dict[int, float] = {}
    for stage in sorted(set(run.stages.tolist())):
        own = (run.kinds == kind) & (run.stages == stage)
        if own.any():
            by_dp = np.sort(work[own].mean(axis=(0, 2)))
            out[stage] = float(by_dp[(len(by_dp) - 1) // 2])
    return out


def of_other_workers(run: Replay, work: Floats, pp: int, dp: int) -> Floats:
    """A worker's computes at the median of their kind on the other ranks of its stage."""
    out = work.copy()
    for kind in COMPUTES:
        own = (run.kinds == kind) & (run.stages == pp)
        if own.any():
            out[own, dp] = np.median(np.delete(work[own], dp, axis=1), axis=(0, 1))
    return out


def alike_stages(run: Replay, work: Floats) -> Floats:
    """Each compute scaled from what is typical of its stage to the mean over all stages."""
    out = work.copy()
    for kind in COMPUTES:
        typical = _typical(run, work, kind)
        for stage, us in typical.items():
            if us > 0:
                which = (run.kinds == kind) & (run.stages == stage)
                out[which] *= float(np.mean(list(typical.values()))) / us
    return out


def alike_microbatches(run: Replay, work: Floats) -> Floats:
    """Each compute at the mean of its kind on its own worker, over microbatches and steps."""
    out = work.copy()
    for kind in COMPUTES:
        for stage in set(run.stages.tolist()):
            own = (run.kinds == kind) & (run.stages == stage)
            if own.any():
                out[own] = work[own].mean(axis=(0, 2), keepdims=True)
    return out
