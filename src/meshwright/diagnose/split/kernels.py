"""Kernels by name and by class, and what of them overlaps on one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.diagnose.rank import Kernel
from meshwright.diagnose.split.classes import CLASSES, classed
from meshwright.diagnose.split.operators import classed_operator
from meshwright.diagnose.split.pieces import innermost
from meshwright.diagnose.split.unions import percent
from meshwright.diagnose.trace.columns import Host

if TYPE_CHECKING:
    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs, Trace

TOP = 10
LONGEST_NAME = 160  # names of templates go on for thousands of characters


def kernels_record(trace: Trace, work: Work) -> dict[str, Any]:
    """Sums of kernel time, of the whole trace: in all, by class, and of the kernels that take most.

    These are sums of durations, not unions: what runs side by side counts twice.
    """
    length = trace.device.end_ns - trace.device.start_ns
    whole = int(length.sum())
    by_class = np.bincount(work.group, length, minlength=len(CLASSES))
    told = {CLASSES[n]: int(ns) / 1000 for n, ns in enumerate(by_class) if ns}
    return {
        "kernel_time_sum_us": whole / 1000,
        "kernel_class_sum_us": dict(sorted(told.items(), key=lambda item: -item[1])),
        "top_kernels": top_kernels(trace, length, whole),
        "same_stream_overlap_us": same_stream_overlap_ns(trace) / 1000,
    }


def top_kernels(trace: Trace, length: Longs, whole_ns: int) -> tuple[Kernel, ...]:
    """The kernels, copies and sets that take most time, by name."""
    name = trace.device.name
    count = np.bincount(name)
    sums = np.bincount(name, length)
    held = np.flatnonzero(count)
    most = held[np.argsort(-sums[held], kind="stable")][:TOP]
    return tuple(
        Kernel(
            name=trace.names[n][:LONGEST_NAME],
            kind=classed(trace.names[n])[1],
            sum_us=int(sums[n]) / 1000,
            count=int(count[n]),
            pct_of_kernel_sum=percent(sums[n], whole_ns),
        )
        for n in most
    )


def top_operators(trace: Trace) -> tuple[Kernel, ...]:
    """The operators on the host that take most time of their own, nested ones not counted."""
    operators = trace.operators
    pieces = innermost(operators, np.flatnonzero(operators.kind == Host.OPERATOR))
    if len(pieces.row) == 0:
        return ()
    name = operators.name[pieces.row]
    sums = np.bincount(name, pieces.end_ns - pieces.start_ns)
    count = np.bincount(operators.name[np.unique(pieces.row)], minlength=len(sums))
    most = np.argsort(-sums, kind="stable")[:TOP]
    return tuple(
        Kernel(
            name=trace.names[n][:LONGEST_NAME],
            kind=(classed_operator(trace.names[n]) or ("other", "other"))[1],
            sum_us=int(sums[n]) / 1000,
            count=int(count[n]),
            pct_of_kernel_sum=percent(sums[n], sums.sum()),
        )
        for n in most
        if sums[n] > 0
    )


def same_stream_overlap_ns(trace: Trace) -> int:
    """How much of the durations on any one stream lies under another event of that stream.

    It should be none: a stream runs one event at a time. Some ROCm traces have overlaps, and clocks
    of a microsecond make small ones.
    """
    device = trace.device
    if len(device) == 0:
        return 0
    lane = (device.device.astype(np.int64) << 32) + device.stream
    order = np.lexsort((device.start_ns, lane))
    lane, start, end = lane[order], device.start_ns[order], device.end_ns[order]
    first = np.concatenate(([True], lane[1:] != lane[:-1]))
    reach = _reach(np.cumsum(first), end)
    before = np.concatenate(([0], reach[:-1]))
    under = np.minimum(end, before) - start
    return int(np.maximum(under, 0)[~first].sum())


def _reach(group: Longs, end: Longs) -> Longs:
    """The latest end so far in each group; groups follow each other."""
    ends, rank = np.unique(end, return_inverse=True)
    base = group.astype(np.int64) * len(ends)
    return np.asarray(ends[np.maximum.accumulate(base + rank) - base], dtype=np.int64)
