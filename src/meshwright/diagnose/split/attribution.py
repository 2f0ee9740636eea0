"""Every nanosecond of a window in exactly one part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.diagnose.rank import Attribution
from meshwright.diagnose.split.idle import DEPENDENCY, LATE, LATENCY, TAIL, by_launch
from meshwright.diagnose.split.intervals import (
    NOTHING,
    Spans,
    clip,
    intersect,
    pieces,
    subtract,
    total,
)
from meshwright.diagnose.split.unions import one_window, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Trace

    Owners = Sequence[tuple[str, Spans]]

DATALOADER, MALLOC = "idle_dataloader", "idle_malloc_free"
CHECKPOINT, PROFILER = "idle_checkpoint", "idle_profiler"
ALWAYS = (DATALOADER, MALLOC)  # told even where they own nothing
LOST = {
    "data_processing": (DATALOADER,),
    "host_launch": (LATE, LATENCY),
    "communication": ("exposed_comm",),
    "memory_copy": ("exposed_memory",),
    "malloc": (MALLOC,),
    "device_dependency": (DEPENDENCY,),
}


def attribution_of(
    trace: Trace, work: Work, owners: Owners, *, window: tuple[str, int, int]
) -> tuple[Attribution, Mapping[str, Spans]]:
    """The parts of a window, given as (words, start, end) in nanoseconds, and when it was idle.

    Compute wins over communication, and that over copies. Idle time goes to the `owners` in turn,
    then by the launch of the device event that ends it (`idle.by_launch`). An owner of nothing is
    told only for data loading and the allocator.
    """
    words, start, end = window
    compute, active, busy, overlap = (
        total(clip(spans, start, end))
        for spans in (work.compute, work.active, work.busy, work.overlap)
    )
    idle = idle_by_owner(trace, work, owners, window=(start, end))
    parts = {
        "compute": compute,
        "exposed_comm": active - compute,
        "exposed_memory": busy - active,
        **{name: total(spans) for name, spans in idle.items() if spans or name in ALWAYS},
    }
    found = Attribution(
        window=words,
        window_us=(end - start) / 1000,
        parts_us={part: ns / 1000 for part, ns in parts.items()},
        parts_pct={part: percent(ns, end - start) for part, ns in parts.items()},
        overlapped_comm_us=overlap / 1000,
    )
    return found, idle


def idle_by_owner(
    trace: Trace, work: Work, owners: Owners, *, window: tuple[int, int]
) -> dict[str, Spans]:
    """When the device had nothing to do in a window, by owner; every moment has one.

    Neighbours in the sets may touch. Checkpoints and the profiler own nothing after the last
    event: that is the tail in any case.
    """
    idle = idle_in(work, *window)
    last = int(work.begins[-1]) if len(work.begins) else window[1]
    held = {}
    for name, spans in owners:
        of = clip(spans, window[0], window[1] if name in ALWAYS else min(window[1], last))
        held[name] = intersect(idle, of)
        idle = subtract(idle, of)
    idle = pieces(idle, work.begins)
    # Events of no length (clocks of a microsecond) begin a piece and count as what ends it.
    return held | by_launch(trace, work, idle, ends=idle.start)


def idle_in(work: Work, start: int, end: int) -> Spans:
    """The moments of a window at which the device has nothing to do."""
    whole = Spans(*one_window(start, end)) if end > start else NOTHING
    return subtract(whole, clip(work.busy, start, end))


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
    "attribution_of",
    "idle_by_owner",
    "lost_shares",
]
