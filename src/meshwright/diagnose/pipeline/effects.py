"""What uneven stages, slow workers and uneven microbatches each cost a step.

Several of them hide one another: with the last stage mended, uneven microbatches still keep the
others waiting. So a cause costs the mean of two figures: what goes away when it alone is taken
from the actual step, and what comes back when it alone is put to a step without any of them (the
Shapley value of two players, the cause and all others; arXiv 2505.05713 uses both figures apart).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.pipeline.alike import (
    alike_microbatches,
    alike_stages,
    of_other_workers,
)
from meshwright.diagnose.pipeline.replay import steps_us

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.diagnose.pipeline.operations import Floats
    from meshwright.diagnose.pipeline.what_if import Replay

    Cure = Callable[[Floats], Floats]


def effects_us(run: Replay, slowest: tuple[tuple[int, int], ...]) -> Mapping[str, float]:
    """ "microbatches", "workers" and "stages" -> microseconds of a median step, 0 at least.

    `slowest` are the (pp, dp index) of the workers that count as slow.
    """
    cures = _cures(run, slowest)
    actual = run.actual_us
    none = _step(run, list(cures.values()))
    out: dict[str, float] = {}
    for name, cure in cures.items():
        others = [other for key, other in cures.items() if key != name]
        removed = actual - _step(run, [cure])
        added = _step(run, others) - none
        out[name] = max(float(np.median(removed + added)) / 2, 0.0)
    return out


def _cures(run: Replay, slowest: tuple[tuple[int, int], ...]) -> dict[str, Cure]:
    cures: dict[str, Cure] = {"microbatches": lambda work: alike_microbatches(run, work)}
    if len(run.table.dps) > 1:
        cures["workers"] = lambda work: _without_slow(run, work, slowest)
    if len(set(run.stages.tolist())) > 1:
        cures["stages"] = lambda work: alike_stages(run, work)
    return cures


def _without_slow(run: Replay, work: Floats, slowest: tuple[tuple[int, int], ...]) -> Floats:
    out = work
    for pp, dp in slowest:
        out = of_other_workers(run, out, pp, dp)
    return out


def _step(run: Replay, cures: list[Cure]) -> Floats:
    """Steps after some cures, one upon the other; other operations than computes as they were."""
    work = run.work
    for cure in cures:
        work = cure(work)
    return steps_us(run.graph, np.where(run.computes(), work, run.work))
