"""Figures that need the plan that ran: traces have the time, the prediction has the amount."""

from __future__ import annotations

from collections import Counter
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
    """Ratios of the plan's terms; None without a plan."""
    if job is None or not promises:
        return None
    from meshwright.cost.calibration import default_calibration, fits_of

    between, update = _ratios(ranks, job, promises)
    host = _promise(promises, HOST)
    host_s = None if host is None else (host.measured_s or 0.0) - host.predicted_s
    _, stack = fits_of(job, default_calibration())
    told = {}
    if between is not None:
        told["elementwise"] = stack.elementwise * between
    if update is not None:
        told["optimizer"] = stack.optimizer / update
    if host_s is not None:
        told["step_s"] = max(stack.step_s + host_s, 0.0)
    return BesidePlan(between=between, update=update, host_s=host_s, stack=told)


def _promise(promises: Sequence[Promise], start: str) -> Promise | None:
    return next(
        (p for p in promises if p.term.startswith(start) and p.measured_s is not None), None
    )


def _ratios(
    ranks: Sequence[Rank], job: Job, promises: Sequence[Promise]
) -> tuple[float | None, float | None]:
    """Of the pieces of the model and of the optimizer, which one promise has together."""
    both = _promise(promises, BETWEEN)
    if both is None or not both.measured_s:
        return None, None
    from meshwright.cost.predict import predict

    optimizer_s = predict(job).terms["time.optimizer"].value
    share = _optimizer_share(ranks)
    between = both.measured_s * (1.0 - share), both.predicted_s - optimizer_s
    return _ratio(*between), _ratio(both.measured_s * share, optimizer_s)


def _optimizer_share(ranks: Sequence[Rank]) -> float:
    """The optimizer's share of the kernels that are neither products nor attention."""
    sums: Counter[str] = Counter()
    for rank in ranks:
        sums.update(rank.kernel_class_sum_us)
    rest = sum(us for kind, us in sums.items() if kind not in OTHERS)
    return sums["optimizer"] / rest if rest > 0 else 0.0


OTHERS = ("gemm", "conv", "attention", "comm", "memory")


def _ratio(measured_s: float, predicted_s: float) -> float | None:
    if measured_s <= 0 or predicted_s <= 0:
        return None
    ratio = measured_s / predicted_s
    return ratio if POSSIBLE[0] <= ratio <= POSSIBLE[1] else None


def coefficients_of(found: BesidePlan | None, ranks: Sequence[Rank]) -> list[Coefficient]:
    """The same as figures with what they rest on."""
    if found is None:
        return []
    steps = max(sum(len(r.device_steps) for r in ranks), 1)
    told = []
    if found.between is not None:
        note = "kernels between products and attention, over the plan's prediction"
        told.append(("elementwise", {"times_predicted": found.between}, "medium", note))
    if found.update is not None:
        note = "its kernels over the plan's prediction"
        told.append(("optimizer", {"times_predicted": found.update}, "medium", note))
    if found.host_s is not None:
        note = "waits for the host beyond the plan's; the profiler's own cost is part of it"
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
