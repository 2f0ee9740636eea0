"""The cost model's answer for a batch, as named columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.cost.calibration import default_calibration
from meshwright.cost.memory import memory, memory_stack
from meshwright.cost.predict import NINETY_PERCENT, sigma, time_leaves
from meshwright.cost.step import step_time
from meshwright.evidence.batches import column
from meshwright.evidence.habits import FIRST_RANK_STACKS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.cost.memory import Memory, MemoryStack
    from meshwright.cost.step import StepTime
    from meshwright.evidence.batches import Batch
    from meshwright.plan.job import Job

    Columns = dict[str, NDArray[np.float64]]

GIB = 2.0**30
TIME_TERMS = {
    "compute_s": ("time.compute.matmul", "time.compute.attention", "time.compute.elementwise"),
    "recompute_s": ("time.compute.recompute",),
    "tp_s": ("time.communication.tp",),
    "cp_s": ("time.communication.cp",),
    "ep_s": ("time.communication.ep",),
    "fsdp_s": ("time.communication.fsdp",),
    "host_s": ("time.compute.host", "time.communication.host"),
    "pp_s": ("time.communication.pp",),
    "bubble_s": ("time.bubble",),
    "dp_s": ("time.communication.dp",),
    "optimizer_s": ("time.optimizer",),
    "stall_s": ("time.stall",),
    "fixed_s": ("time.fixed", "time.straggler"),
}
MEMORY_TERMS = {
    "weights_gib": ("weights", "weights.fp8_copies"),
    "gradients_gib": ("gradients", "buffers.gradient_copies", "buffers.buckets"),
    "optimizer_gib": ("optimizer",),
    "activations_gib": ("activations",),
    "logits_gib": ("logits",),
}


def batch_terms(batch: Batch, calibration: Calibration | None) -> Columns:
    """Columns by name for the rows of a batch: seconds and GiB."""
    used = calibration or default_calibration()
    stack = memory_stack(batch.job.stack)
    held = memory(batch.job, stack)
    time = step_time(batch.job, used, peak_bytes=held.peak_bytes, detail=True)
    width = float(np.exp(NINETY_PERCENT * sigma(batch.job, used)))
    found = {
        "step_time_s": time.step_s,
        "low_s": time.step_s / width,
        "high_s": time.step_s * width,
        **memory_terms(held, stack, first_rank=batch.job.stack in FIRST_RANK_STACKS),
        **time_terms(batch.job, time),
    }
    return {name: column(value, len(batch)) for name, value in found.items()}


def time_terms(job: Job, time: StepTime) -> dict[str, Any]:
    """Seconds by cause; together they are the step.

    The kernels of the slowest pipeline rank, exposed communication by axis, what its host adds,
    then what the whole step adds.
    """
    leaves = time_leaves(job, time)
    return {name: sum(leaves[leaf] for leaf in parts) for name, parts in TIME_TERMS.items()}


def memory_terms(held: Memory, stack: MemoryStack, *, first_rank: bool) -> dict[str, Any]:
    """GiB on the fullest rank, or on the first one where that is what the framework reports.

    Totals: the allocated peak with its bound, what the allocator reserves, what the device shows.
    Then the peak by kind; the kinds need not be alive at one moment, and `other_gib` (which may be
    negative) takes the difference.
    """
    prefixes = sorted({".".join(name.split(".")[:2]) for name in held.terms})
    peaks, bounds = (_by_rank(held, prefixes, (part,)) for part in ("peak", "upper"))
    chosen = np.zeros_like(peaks[:1], dtype=int) if first_rank else peaks.argmax(axis=0)[None]
    peak = np.take_along_axis(peaks, chosen, axis=0)[0]
    terms = {
        name: np.take_along_axis(_by_rank(held, prefixes, parts), chosen, axis=0)[0] / GIB
        for name, parts in MEMORY_TERMS.items()
    }
    reserved = peak * (1 + stack.fragmentation)
    totals = {
        "peak_gib": peak / GIB,
        "upper_gib": np.take_along_axis(bounds, chosen, axis=0)[0] / GIB,
        "reserved_gib": reserved / GIB,
        "device_gib": reserved / GIB + stack.context_gib,
    }
    return totals | terms | {"other_gib": totals["peak_gib"] - sum(terms.values())}


def _by_rank(held: Memory, prefixes: list[str], parts: tuple[str, ...]) -> NDArray[np.float64]:
    """Bytes of some parts, a line for each rank and a column for each plan."""
    shape = np.shape(held.peak_bytes)
    sums = [sum(held.terms.get(f"{p}.{part}", 0.0) for part in parts) for p in prefixes]
    return np.stack([np.broadcast_to(np.asarray(v, dtype=float), shape) for v in sums])
