"""A reading beside the prediction, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.cost.memory import memory, memory_stack
from meshwright.cost.traffic import traffic_of
from meshwright.train.measure.marks import BACKWARD, FORWARD, LOSS, UPDATE
from meshwright.train.measure.storage import Category
from meshwright.train.measure.traffic import by_axis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.plan.job import Job
    from meshwright.train.measure.rank import Reading

STACK = "meshwright"  # whose habits the prediction has, whatever stack the job names
MOMENTS = {  # phases of the step, and the moments of the cost model that lie in each
    FORWARD: ("forward",),
    LOSS: ("loss",),
    BACKWARD: ("backward", "accumulated"),
    UPDATE: ("step",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure, measured and predicted (None where the cost model has no such figure).

    `group` is "memory", "phase" or "traffic"; `unit` "bytes" or "calls". Of memory, `at_peak` is
    the part of the measured peak.
    """

    group: str
    name: str
    unit: str
    measured: float
    predicted: float | None
    at_peak: float | None = None

    @property
    def difference(self) -> float | None:
        """predicted / measured - 1; 0 where both are nothing, None where one alone is."""
        if self.predicted is None:
            return None
        if self.measured:
            return self.predicted / self.measured - 1
        return 0.0 if not self.predicted else None

    @property
    def is_equal(self) -> bool:
        """Whether both are the same number."""
        return self.predicted is not None and abs(self.measured - self.predicted) < 0.5


def lines_of(reading: Reading, job: Job, *, stage: int) -> tuple[Line, ...]:
    """Memory by category and phase, then traffic, of a rank of pipeline stage `stage`."""
    terms = _terms(job, stage)
    return (
        *_categories(reading, terms),
        *_phases(reading, terms),
        *_traffic(reading, job, stage),
    )


def _terms(job: Job, stage: int) -> dict[str, float]:
    """The cost model's memory of one stage of this engine, by the names below it."""
    prefix = f"memory.stage{stage}."
    found = memory(job, memory_stack(STACK)).terms
    return {n.removeprefix(prefix): float(v) for n, v in found.items() if n.startswith(prefix)}


def _categories(reading: Reading, terms: Mapping[str, float]) -> list[Line]:
    predicted: dict[Category, float | None] = {
        Category.WEIGHTS: terms["weights"] + terms["weights.fp8_copies"],
        Category.GRADIENTS: terms["gradients"],
        Category.OPTIMIZER: terms["optimizer"],
        Category.ACTIVATIONS: terms["activations"],
        Category.LOGITS: terms["logits"],
        Category.COMMUNICATION: _gathered(terms),
        Category.TEMPORARIES: None,
    }
    at_peak = reading.parts[reading.fullest]
    lines = [
        Line(
            group="memory",
            name=category.label,
            unit="bytes",
            measured=reading.held[category],
            predicted=value,
            at_peak=at_peak.get(category, 0.0),
        )
        for category, value in predicted.items()
    ]
    peak = Line(
        group="memory",
        name="peak",
        unit="bytes",
        measured=reading.peak_bytes,
        predicted=terms["peak"],
        at_peak=reading.peak_bytes,
    )
    return [*lines, peak]


def _gathered(terms: Mapping[str, float]) -> float:
    """Most bytes of gathered parameters and buffers of reductions at one moment."""
    kept = terms["transient.gathered_model"]
    forward = terms["transient.gathered_layer"] + terms["buffers.gather"]
    head = terms["transient.gathered_head"]
    return head + max(forward, kept + terms["buffers.reduce_last"])


def _phases(reading: Reading, terms: Mapping[str, float]) -> list[Line]:
    lines = []
    for phase, moments in MOMENTS.items():
        peaks = [value for stretch, value in reading.peaks.items() if stretch.phase == phase]
        if peaks:
            predicted = max(terms[f"moment.{moment}"] for moment in moments)
            lines.append(
                Line(
                    group="phase",
                    name=phase,
                    unit="bytes",
                    measured=max(peaks),
                    predicted=predicted,
                )
            )
    return lines


def _traffic(reading: Reading, job: Job, stage: int) -> list[Line]:
    """Calls and bytes by axis and collective, of which a formula has none where it is silent."""
    measured = {lane: (flow.calls, flow.bytes) for lane, flow in by_axis(reading.flows).items()}
    predicted = traffic_of(job, stage)
    lines = []
    for lane in sorted({*measured, *predicted}):
        pairs = zip(measured.get(lane, (0, 0)), predicted.get(lane, (0, 0)), strict=True)
        for unit, (found, expected) in zip(("calls", "bytes"), pairs, strict=True):
            name = f"{lane[0]}.{lane[1]}"
            lines.append(
                Line(group="traffic", name=name, unit=unit, measured=found, predicted=expected)
            )
    return lines
