"""All figures of the accuracy page, from runs and their forecasts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.evidence.errors import bound, coverage, errors, errors_by, judge, relative_error
from meshwright.evidence.ranking import groups, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.evidence.errors import Bound, Errors, Judgement
    from meshwright.evidence.forecasts import Forecast
    from meshwright.evidence.ranking import Group, Ranking
    from meshwright.evidence.row import Row, Run

MEMORY_KINDS: Mapping[str, tuple[str, str]] = {
    "allocated": ("allocated_gib", "peak_gib"),
    "reserved": ("reserved_gib", "reserved_gib"),
    "printed as allocated, GB of unknown base": ("other_gib", "peak_gib"),
    "nvidia-smi or unspecified": ("other_gib", "device_gib"),
}  # what was measured, and the forecast that it is held against
_PRINTED = r"max_memory_allocated|peak active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Rows that could be predicted, and why the others could not, most frequent reason first."""

    judged: int
    predicted: int
    reasons: Mapping[str, int]
    partial: int
    partial_predicted: int
    partial_reasons: Mapping[str, int]

    @property
    def share(self) -> float:
        """Share of judged rows that were predicted."""
        return self.predicted / self.judged if self.judged else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Errors against one kind of measurement; the bound is one of allocated memory alone."""

    judgement: Judgement
    bound: Bound | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything that is reported about a runs file."""

    coverage: Coverage
    step_time: Judgement | None
    by_hardware: Mapping[str, Errors]
    by_axis: Mapping[str, Errors]
    by_stack: Mapping[str, Errors]
    interval_coverage: float
    memory: Mapping[str, Memory]
    ranking: Ranking | None
    ranking_by_source: Mapping[str, Ranking]
    groups: tuple[Group, ...]


def summarize_runs(runs: Sequence[Run], forecasts: Sequence[Forecast]) -> Summary:
    """The summary of runs with one forecast each, in the same order."""
    pairs = [(r, f) for r, f in zip(runs, forecasts, strict=True) if r.is_judged and not f.reason]
    timed = [(r, f) for r, f in pairs if r.step_time_s and f.step_time_s]
    off = [float(relative_error(f.step_time_s, r.step_time_s)) for r, f in timed]
    found = groups([r for r, _ in timed], {r.id: f.step_time_s or 0.0 for r, f in timed})
    return Summary(
        coverage=coverage_of(runs, forecasts),
        step_time=judge([r.source for r, _ in timed], off),
        by_hardware=errors_by([r.row.text("gpu") for r, _ in timed], off),
        by_axis=_by_axis([r for r, _ in timed], off),
        by_stack=errors_by([f.stack for _, f in timed], off),
        interval_coverage=coverage(
            [f.low_s for _, f in timed],
            [f.high_s for _, f in timed],
            [r.step_time_s for r, _ in timed],
        ),
        memory={k: m for k in MEMORY_KINDS if (m := _memory(pairs, k)) is not None},
        ranking=summarize(found),
        ranking_by_source=_ranking_by_source(found),
        groups=found,
    )


def coverage_of(runs: Sequence[Run], forecasts: Sequence[Forecast]) -> Coverage:
    """How many rows have a forecast, and the reasons of those that have none."""
    pairs = list(zip(runs, forecasts, strict=True))
    judged = [f.reason for r, f in pairs if r.is_judged]
    partial = [f.reason for r, f in pairs if not r.is_judged]
    return Coverage(
        judged=len(judged),
        predicted=judged.count(""),
        reasons=dict(Counter(filter(None, judged)).most_common()),
        partial=len(partial),
        partial_predicted=partial.count(""),
        partial_reasons=dict(Counter(filter(None, partial)).most_common()),
    )


def _above_one(axis: str) -> Callable[[Row], bool]:
    """Whether an axis is used."""
    return lambda row: (row.integer(axis) or 1) > 1


AXES: Mapping[str, Callable[[Row], bool]] = {
    **{f"{axis} > 1": _above_one(axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "dp")},
    "sequence parallel": lambda row: row.integer("sequence_parallel") == 1,
    "ZeRO-1": lambda row: row.integer("zero_stage") == 1,
    "ZeRO-3 or FSDP": lambda row: (row.integer("zero_stage") or 0) >= 2,
    "recompute full": lambda row: row.text("recompute") == "full",
    "recompute selective": lambda row: row.text("recompute") == "selective",
    "no recompute": lambda row: row.text("recompute") == "none",
    "experts": lambda row: bool(row.integer("experts")),
    "8-bit or narrower": lambda row: row.says("precision", r"fp8|fp4"),
    "one node": lambda row: _nodes(row) <= 1,
    "more than one node": lambda row: _nodes(row) > 1,
}


def _nodes(row: Row) -> float:
    return (row.integer("num_gpus") or 1) / (row.integer("gpus_per_node") or 8)


def _by_axis(runs: Sequence[Run], off: Sequence[float]) -> dict[str, Errors]:
    """Errors of the rows that use each axis or feature."""
    found = {
        name: errors([e for r, e in zip(runs, off, strict=True) if uses(r.row)])
        for name, uses in AXES.items()
    }
    return {name: e for name, e in found.items() if e is not None}


def _memory(pairs: Sequence[tuple[Run, Forecast]], kind: str) -> Memory | None:
    """Peak memory against one kind of measured figure; None for no rows."""
    measured_as, held_against = MEMORY_KINDS[kind]
    rows = [
        (run.source, predicted, forecast.upper_gib, measured)
        for run, forecast in pairs
        if (measured := getattr(run.measured, measured_as)) is not None
        and (predicted := getattr(forecast, held_against)) is not None
        and _is_kind(run, kind)
    ]
    if not rows:
        return None
    sources, peak, upper, measured_gib = zip(*rows, strict=True)
    judgement = judge(sources, [float(e) for e in relative_error(peak, measured_gib)])
    fares = bound(peak, upper, measured_gib) if measured_as == "allocated_gib" else None
    return Memory(judgement=judgement, bound=fares) if judgement else None


def _is_kind(run: Run, kind: str) -> bool:
    """Whether an "other" figure is the framework's, by the notes, or the device's."""
    if MEMORY_KINDS[kind][0] != "other_gib":
        return True
    return run.row.says("notes", _PRINTED) == kind.startswith("printed")


def _ranking_by_source(found: Sequence[Group]) -> dict[str, Ranking]:
    """Ranking of the groups of each source."""
    sources = dict.fromkeys(g.source for g in found)
    ranked = {s: summarize([g for g in found if g.source == s]) for s in sources}
    return {source: r for source, r in ranked.items() if r is not None}
