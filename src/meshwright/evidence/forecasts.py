"""Predictions for the rows of a runs file, from their settings alone."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.evidence.batches import batches
from meshwright.evidence.jobs import job_of
from meshwright.evidence.row import Inexpressible
from meshwright.evidence.terms import batch_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.cost.calibration import Calibration
    from meshwright.evidence.batches import Batch
    from meshwright.evidence.row import Row
    from meshwright.plan.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is predicted for one row, or the reason why nothing is.

    Seconds and GiB; `low_s` and `high_s` bound the stated 90% interval of the step time.
    `peak_gib` is the framework's allocated peak and `upper_gib` its bound, `reserved_gib` what the
    allocator holds, `device_gib` what nvidia-smi shows. `terms` has the main parts by name.
    """

    reason: str = ""
    step_time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    peak_gib: float | None = None
    upper_gib: float | None = None
    reserved_gib: float | None = None
    device_gib: float | None = None
    stack: str = ""
    generation: str = ""
    terms: Mapping[str, float] = field(default_factory=dict)


def forecasts(
    rows: Sequence[Row], *, calibration: Calibration | None = None
) -> tuple[Forecast, ...]:
    """One forecast a row, in order. Takes rows, which hold no measurement."""
    jobs = [job_of(row) for row in rows]
    return forecasts_of_jobs(jobs, calibration=calibration)


def forecasts_of_jobs(
    jobs: Sequence[Job | Inexpressible], *, calibration: Calibration | None = None
) -> tuple[Forecast, ...]:
    """One forecast a job, in order; rows alike but for the plan are predicted together."""
    found = [Forecast(reason=j.reason if isinstance(j, Inexpressible) else "") for j in jobs]
    for batch in batches(jobs):
        for index, forecast in zip(batch.indices, _batch(batch, calibration), strict=True):
            found[index] = forecast
    return tuple(found)


def _batch(batch: Batch, calibration: Calibration | None) -> list[Forecast]:
    """Forecasts of one batch; a cost that cannot be computed is a reason."""
    try:
        table = batch_terms(batch, calibration)
    except (MeshwrightError, KeyError, NotImplementedError) as error:
        return [Forecast(reason=f"no cost: {error}") for _ in batch.indices]
    rows = [{name: float(col[i]) for name, col in table.items()} for i in range(len(batch))]
    return [_forecast(batch.job, row) for row in rows]


def _forecast(job: Job, row: dict[str, float]) -> Forecast:
    """One forecast from its figures by name; what is not a head is a term."""
    for name in ("step_time_s", "peak_gib"):
        if not 0 < row[name] < float("inf"):
            return Forecast(reason=f"no cost: {name} comes out as {row[name]}")
    return Forecast(
        step_time_s=row.pop("step_time_s"),
        low_s=row.pop("low_s"),
        high_s=row.pop("high_s"),
        peak_gib=row.pop("peak_gib"),
        upper_gib=row.pop("upper_gib"),
        reserved_gib=row.pop("reserved_gib"),
        device_gib=row.pop("device_gib"),
        stack=job.stack,
        generation=job.cluster.gpu.generation,
        terms=row,
    )
