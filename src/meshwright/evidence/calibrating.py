"""The fit applied to the time model: which parameters, which rows, what is written back."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.encode import to_toml
from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.cost.calibration import (
    HardwareFit,
    Stack,
    calibration_from_table,
    default_calibration,
)
from meshwright.cost.memory import memory, memory_stack
from meshwright.cost.step import step_time
from meshwright.evidence.batches import batches, column
from meshwright.evidence.fit import Parameter, fit, source_weights
from meshwright.evidence.jobs import job_of
from meshwright.evidence.row import Inexpressible
from meshwright.evidence.timed import timed
from meshwright.plan.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.evidence.batches import Batch
    from meshwright.evidence.fit import Fitted
    from meshwright.evidence.row import Run

    Key = tuple[str, str, str]

LEAST_ROWS = 5  # entries with fewer judged rows keep what they inherit
MANY_ROWS = 40  # stacks with fewer fit their core parameters only
LEAST_SHIFT = 0.03  # of its range: a parameter that moves less from its prior stays there
CORE = ("matmul", "attention", "elementwise", "host_layer_s", "overlap_tp", "overlap_dp", "step_s")
ROUTED_CORE = ("ep_rate", "overlap_ep", "moe_grouped", "moe_elementwise")


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a named parameter, and how firmly its default holds."""

    lower: float
    upper: float
    prior_weight: float = 20.0
    log: bool = False


HARDWARE_RANGES: Mapping[str, Range] = {
    "matmul": Range(0.5, 1.1),
    "memory": Range(0.5, 1.0),
    "scale_up": Range(0.3, 1.0),
    "scale_out": Range(0.2, 1.0),
    "fp8": Range(0.5, 1.2),
}
STACK_RANGES: Mapping[str, Range] = {
    "matmul": Range(0.6, 1.1),
    "attention": Range(0.4, 1.3),
    "unfused_passes": Range(3.0, 25.0, log=True),
    "elementwise": Range(0.7, 4.0, log=True),
    "host_layer_s": Range(2e-5, 3e-3, log=True),
    "host_tp_s": Range(1e-5, 2e-3, log=True),
    "host_microbatch_s": Range(1e-4, 3e-2, log=True),
    "step_s": Range(1e-4, 0.5, log=True),
    "straggler": Range(0.0, 0.06),
    "overlap_tp": Range(0.0, 0.95),
    "overlap_dp": Range(0.0, 1.0),
    "overlap_fsdp": Range(0.0, 1.0),
    "overlap_ep": Range(0.0, 1.0),
    "overlap_pp": Range(0.0, 1.0),
    "tp_rate": Range(0.3, 1.3),
    "dp_rate": Range(0.2, 1.2),
    "ep_rate": Range(0.2, 1.2),
    "p2p_rate": Range(0.1, 1.2),
    "moe_grouped": Range(0.4, 1.1),
    "moe_host": Range(1.0, 10.0, log=True),
    "optimizer": Range(0.1, 1.0),
    "fp8_overhead": Range(0.0, 3.0),
    "network_latency": Range(0.3, 10.0, log=True),
    "moe_elementwise": Range(0.5, 8.0, log=True),
}
RARE_RANGES: Mapping[str, Range] = {
    "host_p2p_s": Range(0.0, 5e-3),
    "tp_behind_pp_s": Range(0.0, 1e-2),
    "p2p_stall_s": Range(0.0, 2.0),
    "thrash_s": Range(0.0, 4.0),
}  # fitted only where a stack already has a value: few stacks stall


class Measured:
    """Judged rows as batches, predicted under any calibration: the fit's `Predictor`."""

    def __init__(self, runs: Sequence[Run], calibration: Calibration) -> None:
        pairs = [(run, job_of(run.row)) for run in timed(runs) if _is_usable(run)]
        kept = [(run, job) for run, job in pairs if not isinstance(job, Inexpressible)]
        self.runs: tuple[Run, ...] = tuple(run for run, _ in kept)
        self.jobs: list[Job | Inexpressible] = [job for _, job in kept]
        self.batches: tuple[Batch, ...] = batches(self.jobs)
        self.calibration = calibration
        self.peak_bytes = [
            memory(b.job, memory_stack(b.job.stack)).peak_bytes for b in self.batches
        ]
        self.seconds: NDArray[np.float64] = np.asarray(
            [run.step_time_s for run in self.runs], dtype=float
        )
        self._touched: dict[tuple[str, str], NDArray[np.int64]] = {}

    def __call__(self, values: Mapping[Key, float], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predicted seconds of the rows at `rows`."""
        return self.under(self.calibration.with_values(values), rows)

    def under(self, calibration: Calibration, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predicted seconds of the rows at `rows`, only batches with one of them being computed."""
        wanted = np.zeros(len(self.runs), dtype=bool)
        wanted[rows] = True
        seconds = np.ones(len(self.runs))
        for position, batch in enumerate(self.batches):
            indices = np.asarray(batch.indices)
            if wanted[indices].any():
                found = step_time(batch.job, calibration, peak_bytes=self.peak_bytes[position])
                seconds[indices] = column(found.step_s, len(batch))
        return seconds[rows]

    def touched_by(self, key: Key) -> NDArray[np.int64]:
        """Rows of the parameter's hardware generation or software stack."""
        table, entry, _ = key
        if (table, entry) not in self._touched:
            found = [i for b in self.batches if entry == _entry(b.job, table) for i in b.indices]
            self._touched[table, entry] = np.asarray(sorted(found), dtype=np.int64)
        return self._touched[table, entry]

    def routed_rows(self, stack: str) -> int:
        """Rows of a stack whose model has experts."""
        known = (job for job in self.jobs if not isinstance(job, Inexpressible))
        return sum(job.stack == stack and job.model.is_moe for job in known)

    def counts(self, table: str) -> Counter[str]:
        """Rows by hardware generation or by stack."""
        return Counter(
            _entry(job, table) for job in self.jobs if not isinstance(job, Inexpressible)
        )


def _is_usable(run: Run) -> bool:
    """True for judged rows with a measured step time."""
    return run.is_judged and run.step_time_s is not None


def _entry(job: Job, table: str) -> str:
    """The entry of a table that a job reads."""
    return job.cluster.gpu.generation if table == "hardware" else job.stack


def parameters_for(measured: Measured) -> tuple[Parameter, ...]:
    """The free parameters that the rows can inform: those of entries with enough of them."""
    found: list[Parameter] = []
    for entry, rows in sorted(measured.counts("hardware").items()):
        if rows >= LEAST_ROWS:
            found += _parameters(measured, "hardware", entry, HARDWARE_RANGES)
    for entry, rows in sorted(measured.counts("stack").items()):
        if rows >= LEAST_ROWS:
            few = CORE + (ROUTED_CORE if measured.routed_rows(entry) >= LEAST_ROWS else ())
            names = STACK_RANGES if rows >= MANY_ROWS else few
            ranges = {name: STACK_RANGES[name] for name in names}
            found += _parameters(measured, "stack", entry, ranges | _rare(measured, entry))
    return tuple(found)


def _parameters(
    measured: Measured, table: str, entry: str, ranges: Mapping[str, Range]
) -> list[Parameter]:
    """One entry's parameters."""
    return [_parameter(measured, table, entry, name, span) for name, span in ranges.items()]


def _rare(measured: Measured, entry: str) -> dict[str, Range]:
    """Parameters of the stalls that a stack has."""
    held = measured.calibration.stack(entry)
    return {name: span for name, span in RARE_RANGES.items() if getattr(held, name) > 0}


def _parameter(measured: Measured, table: str, entry: str, name: str, span: Range) -> Parameter:
    """One parameter: its prior what its kin holds, its start what the calibration holds."""
    calibration = measured.calibration
    held = calibration.hardware_fit(entry) if table == "hardware" else calibration.stack(entry)
    kin = _kin(calibration, table, held)
    return Parameter(
        table=table,
        entry=entry,
        name=name,
        lower=span.lower,
        upper=span.upper,
        prior=_within(float(getattr(kin, name)), span),
        prior_weight=span.prior_weight,
        log=span.log,
        start=_within(float(getattr(held, name)), span),
    )


def _kin(calibration: Calibration, table: str, held: HardwareFit | Stack) -> HardwareFit | Stack:
    """The entry whose values one takes when nothing says otherwise: its kin, else the default."""
    if table == "hardware":
        return calibration.hardware_fit("default")
    return calibration.stack(getattr(held, "kin", "") or "default")


def _within(value: float, span: Range) -> float:
    """The value moved inside the bounds."""
    return min(max(value, span.lower), span.upper)


def refit(
    runs: Sequence[Run],
    *,
    calibration: Calibration | None = None,
    exponent: float = 0.7,
    max_evaluations: int = 30,
) -> tuple[Calibration, Fitted]:
    """A calibration fitted to the judged rows of `runs`, beginning at `calibration`.


    Generations and stacks that no row has become their kin or the new default, which is the median
    of the fitted ones.
    """
    measured = Measured(runs, calibration or default_calibration())
    measured.calibration = with_entries(measured.calibration, measured)
    weights = source_weights([run.source for run in measured.runs], exponent=exponent)
    found = fit(
        parameters_for(measured),
        measured,
        measured.seconds,
        weights,
        max_evaluations=max_evaluations,
    )
    fitted = with_default(measured.calibration.with_values(shifted(found)), measured.jobs)
    return _with_scatter(fitted, measured), found


def shifted(found: Fitted) -> dict[Key, float]:
    """Fitted values, those that hardly moved put back to their priors, so that few are free."""
    return {
        p.key: value if abs(p.inward(value) - p.inward(p.prior)) >= LEAST_SHIFT else p.prior
        for p, value in zip(found.parameters, found.values.values(), strict=True)
    }


def with_entries(calibration: Calibration, measured: Measured) -> Calibration:
    """The calibration with an entry of its own for every generation and stack that rows have."""
    hardware, stacks = dict(calibration.hardware), dict(calibration.stacks)
    for name in measured.counts("hardware"):
        hardware.setdefault(name, calibration.hardware_fit(name))
    for name in measured.counts("stack"):
        stacks.setdefault(name, calibration.stack(name))
    return replace(calibration, hardware=hardware, stacks=stacks)


def with_default(calibration: Calibration, jobs: Iterable[Job | Inexpressible]) -> Calibration:
    """The default as the median of the entries that `jobs` inform, the others as kin or default."""
    known = [job for job in jobs if isinstance(job, Job)]
    hardware = _informed(Counter(_entry(job, "hardware") for job in known))
    stacks = _informed(Counter(_entry(job, "stack") for job in known))
    return replace(
        calibration,
        hardware=_completed(calibration.hardware, hardware, HARDWARE_RANGES),
        stacks=_completed(calibration.stacks, stacks, STACK_RANGES),
    )


def _informed(counts: Mapping[str, int]) -> set[str]:
    return {name for name, rows in counts.items() if rows >= LEAST_ROWS}


def _completed(
    entries: Mapping[str, Any], informed: set[str], ranges: Mapping[str, Range]
) -> dict[str, Any]:
    """Entries with a new default, those that the rows do not inform inheriting afresh."""
    if not informed:
        return dict(entries)
    medians = {n: float(np.median([getattr(entries[e], n) for e in informed])) for n in ranges}
    found = {e: entries[e] for e in informed}
    default = replace(entries["default"], **medians)
    for name in sorted(set(entries) - informed - {"default"}):
        kin = found.get(getattr(entries[name], "kin", ""), default)
        inherited = [n for n in (*ranges, *RARE_RANGES) if hasattr(kin, n)]
        found[name] = replace(entries[name], **{n: getattr(kin, n) for n in inherited})
    return {"default": default} | found


def fitted_on(runs: Sequence[Run]) -> dict[str, str]:
    """By stack, the sources and rows that inform it."""
    usable = [(run, job_of(run.row)) for run in timed(runs) if _is_usable(run)]
    seen: dict[str, Counter[str]] = {}
    for run, job in usable:
        if not isinstance(job, Inexpressible):
            seen.setdefault(job.stack, Counter())[run.source] += 1
    return {
        stack: ", ".join(f"{source} ({rows})" for source, rows in sources.most_common())
        for stack, sources in seen.items()
    }


def _with_scatter(calibration: Calibration, measured: Measured) -> Calibration:
    """The calibration with each stack's scatter, such that 90% of its rows lie in the interval.

    The scatter of a hardware generation is that of the steadiest stack on it.
    """
    predicted = measured.under(calibration, np.arange(len(measured.runs)))
    off = np.abs(np.log(predicted / measured.seconds))
    values: dict[Key, float] = {("stack", "default", "sigma"): scatter(off)}
    by_stack: dict[str, float] = {}
    for stack in measured.counts("stack"):
        by_stack[stack] = scatter(off[measured.touched_by(("stack", stack, "sigma"))])
        values["stack", stack, "sigma"] = by_stack[stack]
    for job in (job for job in measured.jobs if isinstance(job, Job)):
        key = ("hardware", _entry(job, "hardware"), "sigma")
        values[key] = min(values.get(key, 1.0), by_stack[job.stack])
    return calibration.with_values(values)


def scatter(off: NDArray[np.float64]) -> float:
    """Sigma of a normal whose 90% interval holds 90% of these absolute log errors.

    With few rows it is widened as if two more errors of 25% had been seen.
    """
    seen = np.concatenate([off, [0.25, 0.25]])
    return max(float(np.quantile(seen, 0.9)) / 1.645, 0.02)


def calibration_toml(calibration: Calibration, notes: Mapping[str, str]) -> str:
    """The text of cost/data/calibration.toml; `notes` go to `fitted_on` by stack."""
    stacks = {
        name: replace(entry, fitted_on=notes.get(name, entry.fitted_on))
        for name, entry in calibration.stacks.items()
    }
    tables = {
        "hardware": _tables(calibration.hardware, HardwareFit()),
        "stack": _tables(stacks, Stack()),
    }
    return to_toml(tables)


def _tables(entries: Mapping[str, Any], plain: Any) -> dict[str, dict[str, Any]]:
    """Each entry's values that differ from what it inherits, `default` first."""
    default = entries.get("default", plain)
    found = {"default": _changed(default, plain)}
    for name in sorted(set(entries) - {"default"}):
        kin = getattr(entries[name], "kin", "")
        found[name] = _changed(entries[name], entries.get(kin, default))
    return found


def _changed(entry: Any, inherited: Any) -> dict[str, Any]:
    """Values of `entry` that `inherited` does not give, rounded to four digits."""
    names = [f.name for f in fields(entry)]
    changed = {n: _rounded(getattr(entry, n)) for n in names}
    return {n: v for n, v in changed.items() if v != _rounded(getattr(inherited, n))}


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def read_calibration(path: str | Path) -> Calibration:
    """The calibration in a file like cost/data/calibration.toml.

    Raises InvalidInput when the file cannot be read, or is not such a file.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return calibration_from_table(table)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        place = Finding(message=f"not a calibration file: {error}", file=str(path))
        raise InvalidInput([place]) from error


def write_fit(
    runs: Sequence[Run],
    out: str | Path,
    *,
    calibration: Calibration | None = None,
    exponent: float = 0.7,
    max_evaluations: int = 30,
) -> Fitted:
    """Refit to the judged rows of `runs`, beginning at `calibration`, and write it to `out`."""
    fitted, found = refit(
        runs, calibration=calibration, exponent=exponent, max_evaluations=max_evaluations
    )
    Path(out).write_text(calibration_toml(fitted, fitted_on(runs)), encoding="utf-8")
    return found
