"""What the plan promised beside what the traces show, term by term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.diagnose.causes.case import LATE, UNEVEN, case_of, class_us, is_elsewhere
from meshwright.diagnose.causes.exposed import DATA_PARALLEL, axis_us
from meshwright.diagnose.causes.pipeline import bubble_us
from meshwright.diagnose.diagnosis import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.cost.terms import Term
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Evidence

SLOWER = 1.15  # measured over predicted: two teams with one plan differ by 5% in the median
FASTER = 1 / SLOWER
UNMODELLED = 0.05  # of the step: what the plan does not speak of and is worth a word
NOTHING_S = 1e-6
PRODUCTS = ("gemm", "conv", "attention")
REST = (
    "elementwise",
    "norm",
    "copy_layout",
    "reduce",
    "embedding",
    "triton",
    "optimizer",
    "sort_scan",
    "pool",
    "other",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Terms of a prediction and what of a trace stands beside their sum."""

    term: str
    parts: tuple[str, ...]
    measured_us: Callable[[Case], float | None]


def promises(evidence: Evidence) -> tuple[Promise, ...]:
    """Each term of the plan's prediction with what was measured, seconds a step; () without a plan.

    A plan for GPUs promises nothing of a run that computed on CPUs.
    Classes of kernels are sums over streams, communication is what stood exposed.
    """
    case = case_of(evidence)
    if case.job is None or not case.step_us or is_elsewhere(case):
        return ()
    from meshwright.cost.predict import predict

    terms = predict(case.job).terms
    found = (_promise(case, row, terms) for row in _ROWS)
    return tuple(p for p in found if p is not None)


def _promise(case: Case, row: _Row, terms: Mapping[str, Term]) -> Promise | None:
    """A row; None where there is neither a promise nor anything measured."""
    predicted_s = sum(terms[f"time{part}"].value for part in row.parts)
    measured_us = row.measured_us(case)
    measured_s = None if measured_us is None else measured_us / 1e6
    if predicted_s < NOTHING_S and (measured_s or 0.0) < NOTHING_S:
        return None
    return Promise(
        term=row.term,
        predicted_s=predicted_s,
        measured_s=measured_s,
        verdict=verdict(predicted_s, measured_s, step_s=case.step_us / 1e6),
    )


def verdict(predicted_s: float, measured_s: float | None, *, step_s: float) -> str:
    """How the two compare, in words."""
    if measured_s is None:
        return "not to be seen in these traces"
    if predicted_s < NOTHING_S:
        share = measured_s / step_s
        return f"not in the plan: {share:.0%} of the step" if share >= UNMODELLED else "small"
    ratio = measured_s / predicted_s
    if abs(measured_s - predicted_s) < _SMALL * step_s:
        return "as planned" if FASTER <= ratio <= SLOWER else "differs, by little of the step"
    if ratio > SLOWER:
        return f"{ratio:.2f} times as planned"
    return "as planned" if ratio >= FASTER else f"less than planned, {ratio:.2f} times"


_SMALL = 0.01  # of the step


def _kernels(*kinds: str) -> Callable[[Case], float | None]:
    """Kernel time by class; unknown where no kernels were traced."""
    return lambda case: (
        class_us(case, *kinds) if any(r.kernel_class_sum_us for r in case.ranks) else None
    )


def _axis(*axes: str) -> Callable[[Case], float | None]:
    """Exposed communication by axis; unknown where no axis of any is known."""
    return lambda case: axis_us(case, *axes)


def _bubble(case: Case) -> float | None:
    """Idle time of pipeline stages, what uneven stages add included."""
    if case.pipeline is not None and not case.ranks:
        return bubble_us(case) + case.part_us(UNEVEN)
    return None


def _host(case: Case) -> float | None:
    return case.part_us(*LATE) if case.ranks else None


def _loading(case: Case) -> float | None:
    return case.part_us("idle_dataloader") if case.ranks else None


def _others(case: Case) -> float | None:
    names = ("exposed_memory", "idle_malloc_free", "idle_checkpoint", "idle_device_dependency")
    return case.part_us(*names) if case.ranks else None


_COMPUTE = ".compute."
_COMM = ".communication."
_ROWS = (
    _Row(term="time", parts=("",), measured_us=lambda case: case.step_us),
    _Row(
        term="time.compute.matmul + attention + recompute",
        parts=(f"{_COMPUTE}matmul", f"{_COMPUTE}attention", f"{_COMPUTE}recompute"),
        measured_us=_kernels(*PRODUCTS),
    ),
    _Row(
        term="time.compute.elementwise + optimizer",
        parts=(f"{_COMPUTE}elementwise", ".optimizer"),
        measured_us=_kernels(*REST),
    ),
    *(
        _Row(term=f"time.communication.{axis}", parts=(f"{_COMM}{axis}",), measured_us=_axis(axis))
        for axis in ("tp", "cp", "ep", "pp")
    ),
    _Row(
        term="time.communication.dp + fsdp",
        parts=(f"{_COMM}dp", f"{_COMM}fsdp"),
        measured_us=_axis(*DATA_PARALLEL),
    ),
    _Row(term="time.bubble", parts=(".bubble",), measured_us=_bubble),
    _Row(term="time.compute.host + fixed", parts=(f"{_COMPUTE}host", ".fixed"), measured_us=_host),
    _Row(term="data loading", parts=(), measured_us=_loading),
    _Row(term="copies, allocator, saving, waits on the device", parts=(), measured_us=_others),
)
