"""Collective kernels of a rank one by one, for comparison with other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.rank import Instances
from meshwright.diagnose.split.intervals import union, within
from meshwright.diagnose.split.work import COMMUNICATION, COMPUTE

if TYPE_CHECKING:
    from meshwright.diagnose.split.steps import Steps
    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Message, Trace


def instances_of(trace: Trace, work: Work, steps: Steps) -> Instances:
    """The collective kernels of a trace in the order of their start, their times as in the file.

    Kernels without a message (batched sends, graphs, libraries that are not NCCL) are told by name.
    """
    device = trace.device
    rows = np.flatnonzero(work.kind == COMMUNICATION)
    message, name = device.message[rows].astype(np.int64), device.name[rows].astype(np.int64)
    alike = (message + 1) * max(len(trace.names), 1) + name
    _, first, signature = np.unique(alike, return_index=True, return_inverse=True)
    kernels = tuple(trace.names[n] for n in name[first])
    messages = tuple(trace.messages[m] if m >= 0 else None for m in message[first])
    start, end = device.start_ns[rows], device.end_ns[rows]
    computing = work.kind == COMPUTE
    compute = union(device.start_ns[computing], device.end_ns[computing])
    epoch = trace.origin_ns + trace.meta.base_ns
    return Instances(
        signatures=tuple(map(_signature, kernels, messages)),
        messages=messages,
        kernels=kernels,
        signature=np.asarray(signature, dtype=np.int32),
        start_ns=start + epoch,
        end_ns=end + epoch,
        exposed_ns=(end - start) - within(compute, start, end),
        seq=device.seq[rows],
        stream=device.stream[rows],
        step=steps.of_event[rows].astype(np.int32),
    )


def _signature(kernel: str, message: Message | None) -> str:
    """What names a collective alike on every rank: not who sends to whom."""
    if message is None:
        return kernel
    parts = (message.collective, message.group, message.ranks, message.dtype)
    return "|".join((*parts, f"{message.in_elements}>{message.out_elements}", kernel))
