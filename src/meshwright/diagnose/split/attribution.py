"""Every nanosecond of a window in exactly one part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.diagnose.rank import Attribution
from meshwright.diagnose.split.idle import DEPENDENCY, LATE, LATENCY, owned, sums_by_launch
from meshwright.diagnose.split.intervals import NOTHING, Spans, clip, pieces, subtract, total
from meshwright.diagnose.split.unions import one_window, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Trace

DATALOADER, MALLOC = "idle_dataloader", "idle_malloc_free"
LOST = {
    "data_processing": (DATALOADER,),
    "host_launch": (LATE, LATENCY),
    "communication": ("exposed_comm",),
    "memory_copy": ("exposed_memory",),
    "malloc": (MALLOC,),
    "device_dependency": (DEPENDENCY,),
}


def attribution_of(
    trace: Trace, work: Work, owners: Sequence[tuple[str, Spans]], *, window: tuple[str, int, int]
) -> Attribution:
    """The parts of a window, given as (words, start, end) in nanoseconds.

    Compute wins over communication, and that over copies. Idle time goes to the `owners` in turn,
    then by the launch of the device event that ends it (`idle.by_launch`). An owner of nothing is
    told only for data loading and the allocator.
    """
    words, start, end = window
    compute, active, busy, overlap = (
        total(clip(spans, start, end))
        for spans in (work.compute, work.active, work.busy, work.overlap)
    )
    parts = {
        "compute": compute,
        "exposed_comm": active - compute,
        "exposed_memory": busy - active,
        **idle_parts(trace, work, owners, window=(start, end)),
    }
    return Attribution(
        window=words,
        window_us=(end - start) / 1000,
        parts_us={part: ns / 1000 for part, ns in parts.items()},
        parts_pct={part: percent(ns, end - start) for part, ns in parts.items()},
        overlapped_comm_us=overlap / 1000,
    )


def idle_parts(
    trace: Trace, work: Work, owners: Sequence[tuple[str, Spans]], *, window: tuple[int, int]
) -> dict[str, int]:
    """Nanoseconds of the idle parts of a window."""
    idle = idle_in(work, *window)
    taken, left = owned(idle, [(name, clip(spans, *window)) for name, spans in owners])
    kept = {n: ns for n, ns in taken.items() if ns or n in (DATALOADER, MALLOC)}
    left = pieces(left, work.begins)
    # Events of no length (clocks of a microsecond) begin a piece and count as what ends it.
    return kept | sums_by_launch(trace, work, left, ends=left.start)


def idle_in(work: Work, start: int, end: int) -> Spans:
    """The moments of a window at which the device has nothing to do."""
    whole = Spans(*one_window(start, end)) if end > start else NOTHING
    return subtract(whole, clip(work.busy, start, end))


def lost_shares(parts_pct: Mapping[str, float]) -> dict[str, float]:
    """Shares of the window that were lost, in percent, the largest first."""
    lost = {share: sum(parts_pct.get(part, 0.0) for part in parts) for share, parts in LOST.items()}
    return dict(sorted(lost.items(), key=lambda item: -item[1]))
