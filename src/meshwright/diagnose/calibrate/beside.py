"""Figures that need the plan that ran: traces have the time, the prediction has the amount."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.diagnose.calibrate.noun import BesidePlan, Coefficient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.diagnosis import Promise
    from meshwright.diagnose.rank import Rank
    from meshwright.plan.job import Job

BETWEEN, HOST = "time.compute.elementwise", "time.compute.host"  # how the terms begin
POSSIBLE = (0.1, 20.0)  # measured over predicted: beyond, something else is at work


def beside_plan(
    ranks: Sequence[Rank], job: Job | None, promises: Sequence[Promise]
) -> BesidePlan | None:
    """Ratios of the plan's terms; None without a plan.

    The host's own time counts only where the host computes: elsewhere kernels hide it.
    """
    if job is None or not promises:
        return None
    from meshwright.cost.calibration import default_calibration, fits_of

    between = _ratio(promises)
    _, stack = fits_of(job, default_calibration())
    on_host = all(r.computes_on == "host" for r in ranks)
    return BesidePlan(
        between=between,
        elementwise=None if between is None else stack.elementwise * between,
        host_s=_more_s(promises) if on_host else None,
    )


def _ratio(promises: Sequence[Promise]) -> float | None:
    for p in promises:
        if p.term.startswith(BETWEEN) and p.measured_s and p.predicted_s > 0:
            ratio = p.measured_s / p.predicted_s
            return ratio if POSSIBLE[0] <= ratio <= POSSIBLE[1] else None
    return None


def _more_s(promises: Sequence[Promise]) -> float | None:
    for p in promises:
        if p.term.startswith(HOST) and p.measured_s is not None:
            return p.measured_s - p.predicted_s
    return None


def coefficients_of(found: BesidePlan | None, ranks: Sequence[Rank]) -> list[Coefficient]:
    """The same as figures with what they rest on."""
    if found is None:
        return []
    steps = max(sum(len(r.device_steps) for r in ranks), 1)
    told = []
    if found.between is not None:
        note = "kernels that are neither products nor attention, over the plan's prediction"
        told.append(("elementwise", {"times_predicted": found.between}, "medium", note))
    if found.host_s is not None:
        note = "time between the host's operators; the profiler's own cost is part of it"
        told.append(("host", {"more_ms": found.host_s * 1e3}, "low", note))
    return [
        Coefficient(
            what=what,
            values=values,
            points=steps,
            spread=0.0,
            confidence=confidence,
            sources=tuple(r.file for r in ranks),
            note=note,
        )
        for what, values, confidence, note in told
    ]
