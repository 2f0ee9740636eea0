"""Every nanosecond of a window in exactly one part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.rank import Attribution
from meshwright.diagnose.split.idle import DEPENDENCY, LATE, LATENCY, TAIL, by_launch
from meshwright.diagnose.split.intervals import (
    Spans,
    intersect,
    merged,
    pieces,
    subtract,
    union,
    within,
)
from meshwright.diagnose.split.unions import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs, Trace

    Owners = Sequence[tuple[str, Spans]]
    Windows = tuple[Longs, Longs]  # starts and ends

DATALOADER, MALLOC = "idle_dataloader", "idle_malloc_free"
CHECKPOINT, PROFILER = "idle_checkpoint", "idle_profiler"
ALWAYS = ("compute", "exposed_comm", "exposed_memory", DATALOADER, MALLOC)  # told even if nothing
OF_HOST = (LATE, LATENCY)
LOST = {
    "data_processing": (DATALOADER,),
    "host_launch": (LATE, LATENCY),
    "communication": ("exposed_comm",),
    "memory_copy": ("exposed_memory",),
    "malloc": (MALLOC,),
    "device_dependency": (DEPENDENCY,),
}


def attributions_of(
    trace: Trace, work: Work, owners: Owners, *, names: Sequence[str], windows: Windows
) -> tuple[tuple[Attribution, ...], Mapping[str, Spans]]:
    """The parts of each window, and when the device was idle in any of them, by owner.

    Windows are in order and apart, though they may touch. Compute wins over communication, and
    that over copies. Idle time goes to the `owners` in turn, then by the launch of the device
    event that ends it (`idle.by_launch`). An owner of nothing is told only for data loading and
    the allocator.
    """
    start, end = windows
    compute, active, busy, overlap = (
        within(spans, start, end) for spans in (work.compute, work.active, work.busy, work.overlap)
    )
    idle = idle_by_owner(trace, work, owners, windows=windows)
    parts = {
        "compute": compute,
        "exposed_comm": active - compute,
        "exposed_memory": busy - active,
        **{name: within(spans, start, end) for name, spans in idle.items()},
    }
    return tuple(
        _attribution(
            name,
            int(end[n] - start[n]),
            {part: int(ns[n]) for part, ns in parts.items() if ns[n] or part in ALWAYS},
            int(overlap[n]),
        )
        for n, name in enumerate(names)
    ), idle


def _attribution(name: str, window: int, parts: Mapping[str, int], overlap: int) -> Attribution:
    return Attribution(
        window=name,
        window_us=window / 1000,
        parts_us={part: ns / 1000 for part, ns in parts.items()},
        parts_pct={part: percent(ns, window) for part, ns in parts.items()},
        overlapped_comm_us=overlap / 1000,
    )


def idle_by_owner(
    trace: Trace, work: Work, owners: Owners, *, windows: Windows
) -> dict[str, Spans]:
    """When the device had nothing to do in windows, by owner; every moment has one.

    Neighbours in the sets may touch. The loader and the allocator own what is idle while the host
    is in them. All others own only what late launches would: work that was queued, or has no
    launch in the trace, does not wait for what the host does meanwhile.
    """
    idle = subtract(union(*windows), work.busy)
    held = {}
    for name, spans in owners:
        if name in ALWAYS:
            held[name] = intersect(idle, spans)
            idle = subtract(idle, spans)
    idle = pieces(idle, np.sort(np.concatenate((work.begins, *windows))))
    # Events of no length (clocks of a microsecond) begin a piece and count as what ends it.
    found = by_launch(trace, work, idle, ends=idle.start)
    for name, spans in owners:
        if name not in ALWAYS:
            held[name] = merged(*(intersect(found[late], spans) for late in OF_HOST))
            found |= {late: subtract(found[late], spans) for late in OF_HOST}
    return held | found


def lost_shares(parts_pct: Mapping[str, float]) -> dict[str, float]:
    """Shares of the window that were lost, in percent, the largest first."""
    lost = {share: sum(parts_pct.get(p, 0.0) for p in parts) for share, parts in LOST.items()}
    return dict(sorted(lost.items(), key=lambda item: -item[1]))


__all__ = [
    "ALWAYS",
    "CHECKPOINT",
    "DATALOADER",
    "MALLOC",
    "PROFILER",
    "TAIL",
    "Owners",
    "Windows",
    "attributions_of",
    "idle_by_owner",
    "lost_shares",
]
