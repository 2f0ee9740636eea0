"""What the pictures show: bars of ranks on one clock, few enough to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.diagnose.diagnosis import Evidence
    from meshwright.diagnose.rank import Bars, Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Bars of one rank, times in nanoseconds since the first bar of all ranks, without overlaps.

    `lane` and `label` are numbers into `lanes` and `labels`; rows are sorted by lane and start.
    `left` bars were too short to be among them and stood for `left_ns`.
    """

    row: int  # of Evidence.ranks
    rank: int | None
    lanes: tuple[str, ...]
    labels: tuple[str, ...]
    lane: NDArray[np.int32]
    label: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    steps: tuple[tuple[str, float, float], ...]  # name, start and length in nanoseconds
    left: int = 0
    left_ns: int = 0


def strips(evidence: Evidence, *, most: int, window_ns: int | None = None) -> list[Strip]:
    """A strip for each rank that has bars, `most` bars in all, the longest of each rank.

    With `window_ns`, only what begins within that time of the first bar.
    """
    drawn = [(n, r, r.bars) for n, r in enumerate(evidence.ranks) if r.bars and len(r.bars.lane)]
    if not drawn:
        return []
    shifts = [_shift_ns(evidence, rank) for _, rank, _ in drawn]
    origin = min(int(b.start_ns.min()) - s for (_, _, b), s in zip(drawn, shifts, strict=True))
    each = max(1, most // len(drawn))
    return [
        _strip(row, rank, bars, origin_ns=origin + shift, most=each, window_ns=window_ns)
        for (row, rank, bars), shift in zip(drawn, shifts, strict=True)
    ]


def _shift_ns(evidence: Evidence, rank: Rank) -> int:
    """What a rank's clock is ahead of the others'."""
    across = evidence.across
    if across is None or rank.rank not in across.ranks or not across.clock_shift_us:
        return 0
    return round(1000 * across.clock_shift_us[across.ranks.index(rank.rank)])


def _strip(
    row: int, rank: Rank, bars: Bars, *, origin_ns: int, most: int, window_ns: int | None
) -> Strip:
    start, end = bars.start_ns - origin_ns, bars.end_ns - origin_ns
    seen = np.flatnonzero(end > start)
    if window_ns is not None:
        seen = seen[start[seen] < window_ns]
    length = end[seen] - start[seen]
    longest = seen[np.sort(np.argsort(-length, kind="stable")[:most])]
    order = longest[np.lexsort((start[longest], bars.lane[longest]))]
    lane, first, last = bars.lane[order], start[order], end[order]
    first = _without_overlaps(lane, first, last)
    return Strip(
        row=row,
        rank=rank.rank,
        lanes=bars.lanes,
        labels=bars.labels,
        lane=lane,
        label=bars.label[order],
        start_ns=first,
        end_ns=last,
        steps=tuple(_steps(rank, origin_ns)),
        left=len(seen) - len(order),
        left_ns=int(length.sum() - (end[order] - start[order]).sum()),
    )


def _without_overlaps(lane: Any, start: Any, end: Any) -> Any:
    """Starts that are never before the end of what came before in the lane."""
    if not len(lane):
        return start
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
    same = np.concatenate(([False], lane[1:] == lane[:-1]))
    return np.minimum(np.where(same, np.maximum(start, before), start), end)


def _steps(rank: Rank, origin_ns: int) -> Iterator[tuple[str, float, float]]:
    """Steps of a rank on the clock of its bars."""
    for step in rank.device_steps or rank.cpu_steps:
        start = 1000 * step.start_us + rank.meta.base_ns - origin_ns
        yield step.name, start, 1000 * step.dur_us
