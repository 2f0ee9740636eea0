"""Further figures of a rank, for the rules of causes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from meshwright.diagnose.split.facts.communication import communication_facts
from meshwright.diagnose.split.facts.copies import copy_facts
from meshwright.diagnose.split.facts.kernels import kernel_facts
from meshwright.diagnose.split.facts.passes import pass_facts
from meshwright.diagnose.split.facts.running import running_facts
from meshwright.diagnose.split.facts.view import View, view_of
from meshwright.diagnose.split.facts.waiting import waiting_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

# Figures beside those that rules read by name (`causes.facts.FACTS` tells these). All are of the
# window of `Rank.attribution`; a figure that the trace cannot tell is left out.
FURTHER: Mapping[str, str] = MappingProxyType(
    {
        "loader_calls": "batches asked of the data loader (a count, whole trace)",
        "loader_median_us": "median time that a batch was asked for",
        "loader_longest_us": "the longest",
        "sync_us": "the host in calls that wait for the device",
        "malloc_us": "the host in the allocator's calls to the driver",
        "copy_calls_blocked_us": "the host in copies that kept it for over 100 us",
        "d2h_calls": "copies from device to host (a count)",
        "h2d_bytes": "bytes copied from host to device",
        "d2h_bytes": "bytes copied from device to host",
        "h2d_pageable_calls": "copies from pageable host memory (a count)",
        "matmul_us": "matrix products",
        "fp8_matmul_us": "matrix products in fp8, by the names of kernels",
        "tf32_matmul_us": "in TF32",
        "bf16_matmul_us": "in bf16",
        "fp16_matmul_us": "in fp16",
        "optimizer_fused_kernels": "of optimizer_kernels: of many tensors each (a count)",
        "optimizer_calls": "calls of Optimizer.step (a count, whole trace)",
        "backward_device_us": "compute launched by the backward pass",
        "collective_calls": "communication kernels (a count)",
        "collective_median_us": "median length of a communication kernel",
        "small_collectives": "of collective_calls: of less than a MiB (a count)",
        "collective_bytes": "bytes of messages, where the trace tells them",
        "profiler_us": "idle in the profiler's own work",
        "step_variation": "standard deviation over mean of the device's steps (a ratio)",
        "first_step_over_rest": "the first step over the median of the others (a ratio)",
        "launch_queue_depth": "median number of queued launches when a device event begins",
        "launch_to_start_us": "median time from a launch to its start on the device",
        "allocations": "allocations of device memory (a count, whole trace)",
        "allocated_peak_bytes": "most device memory allocated at once",
        "reserved_at_peak_bytes": "device memory that the allocator held then",
        "reserved_peak_bytes": "most device memory that the allocator held",
        "devices": "devices with work in the file (a count)",
        "without_launch_share": "share of device time whose launch is not in the trace",
    }
)


def facts_of(view: View) -> dict[str, float]:
    """All further figures of a rank with device events, by name."""
    return {
        **kernel_facts(view),
        **copy_facts(view),
        **waiting_facts(view),
        **pass_facts(view),
        **communication_facts(view),
        **running_facts(view),
    }


__all__ = ["FURTHER", "View", "facts_of", "view_of"]
