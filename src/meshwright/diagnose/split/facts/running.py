"""How the run went: steps against each other, launches ahead of the device, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from meshwright.diagnose.split.facts.view import View


def running_facts(view: View) -> dict[str, float]:
    """Figures of the run as a whole."""
    return _steps(view) | _launches(view) | _memory(view) | _told(view)


def _steps(view: View) -> dict[str, float]:
    length = (view.steps.device_end_ns - view.steps.device_start_ns).astype(np.float64)
    if len(length) < 2 or length.mean() <= 0:
        return {}
    found = {"step_variation": float(length.std() / length.mean())}
    rest = float(np.median(length[1:]))
    return found | ({"first_step_over_rest": float(length[0]) / rest} if rest else {})


def _launches(view: View) -> dict[str, float]:
    """How far launches run ahead: work that is queued when a kernel begins, itself not counted."""
    known = view.within & (view.work.call >= 0)
    if not known.any():
        return {}
    start, launch = view.trace.device.start_ns[known], view.work.launch_ns[known]
    begun = np.searchsorted(start, start, "right")
    queued = np.searchsorted(np.sort(launch), start, "right") - begun
    return {
        "launch_queue_depth": float(np.median(np.maximum(queued, 0))),
        "launch_to_start_us": float(np.median(np.maximum(start - launch, 0))) / 1000,
    }


def _memory(view: View) -> dict[str, float]:
    """The allocator of the device, where memory was profiled."""
    allocations = view.trace.allocations
    ours = allocations.device >= 0
    if not ours.any():
        return {}
    allocated, reserved = allocations.allocated_bytes[ours], allocations.reserved_bytes[ours]
    peak = int(allocated.argmax())
    found = {"allocations": float((allocations.bytes[ours] > 0).sum())}
    if allocated[peak] < 0:
        return found
    return found | {
        "allocated_peak_bytes": float(allocated[peak]),
        "reserved_at_peak_bytes": float(reserved[peak]),
        "reserved_peak_bytes": float(reserved.max()),
    }


def _told(view: View) -> dict[str, float]:
    """What the trace leaves out: launches of device events, and how many devices it has."""
    device = view.trace.device
    length = (device.end_ns - device.start_ns)[view.within]
    without = view.work.call[view.within] < 0
    whole = int(length.sum())
    return {
        "devices": float(len(np.unique(device.device))),
        "without_launch_share": int(length[without].sum()) / whole if whole else 0.0,
    }
