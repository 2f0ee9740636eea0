"""The cost model's answer for a batch, as named columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.cost.calibration import default_calibration
from meshwright.cost.step import step_time
from meshwright.evidence.batches import column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.evidence.batches import Batch

NINETY_PERCENT = 1.645  # half-width of a normal 90% interval in standard deviations

TIME_TERMS = ("matmul", "attention", "elementwise", "host", "tp", "cp", "ep", "recompute", "fsdp")


def batch_terms(batch: Batch, calibration: Calibration | None) -> dict[str, NDArray[np.float64]]:
    """Columns by name for the rows of a batch: seconds and GiB."""
    used = calibration or default_calibration()
    time = step_time(batch.job, used, detail=True)
    seconds = {"step_time_s": time.step_s}
    seconds |= {f"{name}_s": time.parts.get(name, 0.0) for name in TIME_TERMS}
    for name in ("bubble", "p2p", "dp", "optimizer", "fixed", "straggler"):
        seconds[f"{name}_s"] = getattr(time, f"{name}_s")
    found = {name: column(value, len(batch)) for name, value in seconds.items()}
    width = np.exp(NINETY_PERCENT * _sigma(batch, used))
    found |= {"low_s": found["step_time_s"] / width, "high_s": found["step_time_s"] * width}
    return found | _memory(batch)


def _sigma(batch: Batch, calibration: Calibration) -> float:
    """Standard deviation of log(measured / predicted) on this stack."""
    return calibration.stack(batch.job.stack).sigma


def _memory(batch: Batch) -> dict[str, Any]:
    missing = column(np.nan, len(batch))
    return {"peak_gib": missing, "upper_gib": missing}
