"""What the pictures show: bars of ranks on one clock, few enough to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from meshwright.diagnose.diagnosis import Evidence
    from meshwright.diagnose.rank import Bars, Rank

_MOST_STEPS = 6_000  # of all ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Bars of one rank, times in nanoseconds since the first bar of all ranks, without overlaps.

    Its own clock showed `origin_ns` then. `lane` and `label` are numbers into `lanes` and `labels`;
    rows are sorted by lane and start. `left` bars were too short to be among them and stood for
    `left_ns`.
    """

    row: int  # of Evidence.ranks
    origin_ns: int
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


def strips(
    evidence: Evidence, *, most: int, rows: Collection[int] | None = None, steps: int = 0
) -> list[Strip]:
    """A strip for each rank that has bars, `most` bars in all, the longest of each rank.

    Only ranks in `rows` where that is given; with `steps`, that many in the middle of the trace,
    and times since their start.
    """
    drawn = [
        (n, rank, rank.bars)
        for n, rank in enumerate(evidence.ranks)
        if rank.bars is not None and len(rank.bars.lane) and (rows is None or n in rows)
    ]
    if not drawn:
        return []
    shifts = [_shift_ns(evidence, rank) for _, rank, _ in drawn]
    pairs = list(zip(drawn, shifts, strict=True))
    origin = min(int(bars.start_ns.min()) - shift for (_, _, bars), shift in pairs)
    begin, end = _window(drawn[0][1], origin + shifts[0], steps)
    window = (0, end - begin) if end else None
    return [
        _strip(
            row,
            rank,
            bars,
            origin_ns=origin + begin + shift,
            most=max(1, most // len(drawn)),
            most_steps=max(1, _MOST_STEPS // len(drawn)),
            window_ns=window,
        )
        for (row, rank, bars), shift in pairs
    ]


def _shift_ns(evidence: Evidence, rank: Rank) -> int:
    """What a rank's clock is ahead of the others'."""
    across = evidence.across
    if across is None or rank.rank not in across.ranks or not across.clock_shift_us:
        return 0
    return round(1000 * across.clock_shift_us[across.ranks.index(rank.rank)])


def _window(rank: Rank, origin_ns: int, steps: int) -> tuple[int, int]:
    """Begin and end of `steps` steps in the middle of a rank's; (0, 0) for all there is."""
    every = list(_steps(rank, origin_ns))
    if not steps or len(every) <= steps:
        return 0, 0
    first = (len(every) - steps + 1) // 2
    _, last_start, last_length = every[first + steps - 1]
    return round(every[first][1]), round(last_start + last_length)


def _strip(
    row: int,
    rank: Rank,
    bars: Bars,
    *,
    origin_ns: int,
    most: int,
    most_steps: int,
    window_ns: tuple[int, int] | None,
) -> Strip:
    start, end = bars.start_ns - origin_ns, bars.end_ns - origin_ns
    if window_ns is not None:
        start, end = np.clip(start, *window_ns), np.clip(end, *window_ns)
    seen = np.flatnonzero(end > start)
    length = end[seen] - start[seen]
    longest = seen[np.sort(np.argsort(-length, kind="stable")[:most])]
    order = longest[np.lexsort((start[longest], bars.lane[longest]))]
    lane, first, last = bars.lane[order], start[order], end[order]
    first = _without_overlaps(lane, first, last)
    shown = [s for s in _steps(rank, origin_ns) if window_ns is None or _in(s, window_ns)]
    return Strip(
        row=row,
        origin_ns=origin_ns,
        rank=rank.rank,
        lanes=bars.lanes,
        labels=bars.labels,
        lane=lane,
        label=bars.label[order],
        start_ns=first,
        end_ns=last,
        steps=tuple(shown[:most_steps]),
        left=len(seen) - len(order),
        left_ns=int(length.sum() - (end[order] - start[order]).sum()),
    )


def _in(step: tuple[str, float, float], window_ns: tuple[int, int]) -> bool:
    _, start, length = step
    return start < window_ns[1] and start + length > window_ns[0]


def _without_overlaps(lane: Any, start: Any, end: Any) -> Any:
    """Starts that are never before the end of what came before in the lane; rows are by lane."""
    if not len(lane):
        return start
    apart = lane.astype(np.int64) * (int(end.max() - start.min()) + 1)  # lanes one after the other
    before = np.concatenate((start[:1], np.maximum.accumulate(end + apart)[:-1])) - apart
    return np.minimum(np.maximum(start, before), end)


def _steps(rank: Rank, origin_ns: int) -> Iterator[tuple[str, float, float]]:
    """Steps of a rank on the clock of its bars."""
    for step in rank.device_steps or rank.cpu_steps:
        start = 1000 * step.start_us + rank.meta.base_ns - origin_ns
        yield step.name, start, 1000 * step.dur_us
