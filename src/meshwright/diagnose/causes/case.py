"""A case: the evidence, and what most rules read from it, worked out once."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.diagnose.ranks import numbers_of, rank_step_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.diagnosis import Evidence
    from meshwright.diagnose.pipeline.noun import Pipeline
    from meshwright.diagnose.rank import Attribution, Rank
    from meshwright.plan.job import Job

LATE = ("idle_host_late_launch", "idle_launch_latency")
TAIL = "idle_tail_after_last_kernel"
UNTOLD = ("compute", TAIL, "idle_back_to_back_under_5us")
BY_METRICS = {  # part of a step -> its share in metrics.jsonl
    "idle_dataloader": "data_wait_share",
    "idle_checkpoint": "save_share",
    "idle_evaluation": "evaluate_share",
}
AXES = ("tp", "cp", "ep", "dp", "pp")
BUBBLE, UNEVEN = "bubble", "uneven"  # parts of the step of a pipeline's trace
FEWEST_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What rules are asked about.

    `ranks` are those whose time is accounted for, `numbers` theirs. `parts_us` divides a step: mean
    over ranks of the parts of their attributions, or the parts of a pipeline's step; its sum is
    `step_us`. `lost_us` is what of it is neither compute nor unavoidable, `steps` the fewest steps
    of a rank.
    """

    evidence: Evidence
    ranks: tuple[Rank, ...]
    step_us: float
    parts_us: Mapping[str, float]
    steps: int
    numbers: tuple[int, ...] = ()
    guards: tuple[str, ...] = ()

    @property
    def across(self) -> Across | None:
        """What lies between the ranks."""
        return self.evidence.across

    @property
    def pipeline(self) -> Pipeline | None:
        """The trace of a pipeline's operations."""
        return self.evidence.pipeline

    @property
    def job(self) -> Job | None:
        """What was planned."""
        return self.evidence.job

    @property
    def lost_us(self) -> float:
        """Time of a step in which the device did not compute and could have."""
        return sum(us for name, us in self.parts_us.items() if name not in UNTOLD)

    def part_us(self, *names: str) -> float:
        """Microseconds of a step in these parts."""
        return sum(self.parts_us.get(name, 0.0) for name in names)

    def share(self, *names: str) -> float:
        """Share of a step in these parts."""
        return self.part_us(*names) / self.step_us if self.step_us else 0.0

    def of_step(self, us: float) -> float:
        """A time as a share of the step."""
        return us / self.step_us if self.step_us else 0.0


def case_of(evidence: Evidence) -> Case:
    """The case that the evidence makes; with no time accounted for, its step is 0 long."""
    numbered = [
        (number, rank)
        for number, rank in zip(numbers_of(evidence.ranks), evidence.ranks, strict=True)
        if rank.attribution and rank.attribution.window_us > 0
    ]
    if numbered:
        ranks = tuple(rank for _, rank in numbered)
        step_us = median(map(rank_step_us, ranks))
        return Case(
            evidence=evidence,
            ranks=ranks,
            numbers=tuple(number for number, _ in numbered),
            step_us=step_us,
            parts_us=_mean_parts(ranks, step_us),
            steps=min(map(steps_of, ranks)),
            guards=_guards(evidence, ranks),
        )
    if evidence.pipeline is not None:
        return _of_pipeline(evidence, evidence.pipeline)
    return _of_metrics(evidence, evidence.metrics or {})


def _of_metrics(evidence: Evidence, metrics: Mapping[str, Any]) -> Case:
    """The parts that a run's own metrics tell; compute is all the rest."""
    step_us = 1e6 * _number(metrics, "step_s_median")
    shares = {part: _number(metrics, name) for part, name in BY_METRICS.items()}
    parts = {part: share * step_us for part, share in shares.items() if share}
    rest = max(0.0, step_us - sum(parts.values()))
    return Case(
        evidence=evidence,
        ranks=(),
        step_us=step_us,
        parts_us={"compute": rest, **parts} if step_us else {},
        steps=int(_number(metrics, "steps")),
    )


def _number(metrics: Mapping[str, Any], name: str) -> float:
    value = metrics.get(name)
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def _of_pipeline(evidence: Evidence, pipeline: Pipeline) -> Case:
    step_us = pipeline.step_span_us_median
    idle = min(pipeline.mean_idle_pct_of_step, 100.0) / 100
    ideal = min(pipeline.ideal_bubble_pct / 100, idle)
    parts = {"compute": 1 - idle, BUBBLE: ideal, UNEVEN: idle - ideal}
    return Case(
        evidence=evidence,
        ranks=(),
        step_us=step_us,
        parts_us={name: share * step_us for name, share in parts.items()},
        steps=pipeline.steps,
    )


def steps_of(rank: Rank) -> int:
    """Steps in the window of a rank's attribution, at least 1."""
    named = len(rank.cpu_steps) or len(rank.device_steps)
    return max(1, (rank.step_window.n_steps if rank.step_window else 0) or named)


def _mean_parts(ranks: tuple[Rank, ...], step_us: float) -> dict[str, float]:
    """Mean over ranks of each part, as a step of `step_us` has it."""
    found = [r.attribution for r in ranks if r.attribution]
    names = dict.fromkeys(name for a in found for name in a.parts_us)
    return {n: step_us * fmean(part_share(a, n) for a in found) for n in names}


def part_share(attribution: Attribution, name: str) -> float:
    """Share of a window in a part."""
    if not attribution.window_us:
        return 0.0
    return attribution.parts_us.get(name, 0.0) / attribution.window_us


def _guards(evidence: Evidence, ranks: tuple[Rank, ...]) -> tuple[str, ...]:
    """What makes everything that the traces say less certain."""
    found = []
    if min(map(steps_of, ranks)) < FEWEST_STEPS:
        found.append("fewer than two steps were traced")
    if any(r.meta.with_stack or r.meta.profile_memory for r in ranks):
        found.append("the profiler itself slowed the host (stacks or memory were recorded)")
    if max(part_share(r.attribution, TAIL) for r in ranks if r.attribution) > LONG_TAIL:
        found.append("stopping the profiler lengthened the last step")
    if any(left.what == CUT_OFF for r in ranks for left in r.left):
        found.append("a file is cut off: work of the device that it lost counts as idle time")
    world = max((r.world_size or 1 for r in ranks), default=1)
    if world > len(ranks):
        found.append(f"{len(ranks)} of {world} ranks were traced")
    residual = evidence.across.clock_residual_us if evidence.across else None
    shifted = evidence.across is not None and any(evidence.across.clock_shift_us)
    if shifted and residual is not None and residual > CLOCKS_APART_US:  # not one clock anyway
        found.append(f"the ranks' clocks agree within {residual:.0f} us only")
    return tuple(found)


LONG_TAIL = 0.05  # of the window
CUT_OFF = "end of the file"  # what readers leave out of a file that ends too early
CLOCKS_APART_US = 100.0  # collectives worth a look last longer


def axis_of(case: Case, axis: str) -> str:
    """The axis of a plan; where it is unknown ("") and the plan has only one, that one."""
    if axis or case.job is None:
        return axis
    only = [name for name in AXES if int(getattr(case.job.plan, name)) > 1]
    return only[0] if len(only) == 1 else ""


def is_elsewhere(case: Case) -> bool:
    """Whether the run computed on CPUs and the plan's cluster was not measured there."""
    on_host = any(rank.computes_on == "host" for rank in case.evidence.ranks)
    return case.job is not None and on_host and case.job.cluster.gpu.curves is None


# Facts


def fact_us(case: Case, name: str) -> float | None:
    """A figure of the ranks as microseconds (or calls) of one step, mean over ranks; None unknown.

    It is scaled as the parts are, so that a portion never exceeds its part by more than rounding.
    """
    found = [r.facts[name] / steps_of(r) * _stretch(case, r) for r in case.ranks if name in r.facts]
    return fmean(found) if found else None


def calls_a_step(case: Case, name: str) -> float | None:
    """A count of the ranks for one step, mean over ranks; None unknown."""
    found = [r.facts[name] / steps_of(r) for r in case.ranks if name in r.facts]
    return fmean(found) if found else None


def largest(case: Case, name: str) -> tuple[float, int] | None:
    """The largest value of a figure, and the rank that has it; None unknown."""
    found = [
        (rank.facts[name], number)
        for number, rank in zip(case.numbers, case.ranks, strict=True)
        if name in rank.facts
    ]
    return max(found) if found else None


def class_us(case: Case, *kinds: str) -> float:
    """Kernel time of these classes in one step, mean over ranks (sums, not unions)."""
    return fmean(_kernel_us(case, r, kinds) for r in case.ranks) if case.ranks else 0.0


def _kernel_us(case: Case, rank: Rank, kinds: Iterable[str]) -> float:
    """Kernel time of classes of a rank, of the whole trace, as one step of the case has it."""
    span = rank.gpu_span.window_us if rank.gpu_span else 0.0
    total = sum(rank.kernel_class_sum_us.get(kind, 0.0) for kind in kinds)
    window = rank.attribution.window_us if rank.attribution else 0.0
    return total / max(span, window) * case.step_us if span else 0.0


def _stretch(case: Case, rank: Rank) -> float:
    """The case's step over the mean step of the rank's window."""
    window = rank.attribution.window_us if rank.attribution else 0.0
    return case.step_us * steps_of(rank) / window if window else 0.0
