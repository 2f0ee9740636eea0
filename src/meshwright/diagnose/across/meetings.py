"""Single collectives as they are kept: those with the longest waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.across.bus import busbw_gb_per_s, payload_bytes
from meshwright.diagnose.across.noun import Met

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.across.table import Rows
    from meshwright.diagnose.across.waits import Waits

MOST = 500
MOST_WAITS = 200_000  # of all of them together


def meetings(rows: Rows, waits: Waits, axes: Mapping[str, str]) -> tuple[Met, ...]:
    """The collectives that cost the most waiting, in the order of time."""
    sizes = np.diff(waits.first)
    total = np.add.reduceat(waits.wait_ns, waits.first[:-1]) if len(waits) else sizes
    worst = np.argsort(-total, kind="stable")[:MOST]
    worst = worst[np.cumsum(sizes[worst]) <= MOST_WAITS]
    return tuple(_met(rows, waits, int(i), axes) for i in np.sort(worst))


def _met(rows: Rows, waits: Waits, index: int, axes: Mapping[str, str]) -> Met:
    low, high = int(waits.first[index]), int(waits.first[index + 1])
    row = waits.row[low:high]
    lane, kind = rows.lanes[int(waits.lane[index])], rows.kinds[int(waits.kind[index])]
    message = kind.message
    size = 2 if lane.pair else max(lane.size, len(lane.members))
    moved = payload_bytes(message) if message else None
    transfer = int(waits.transfer_ns[index])
    return Met(
        index=index,
        kernel=kind.kernel,
        group=lane.group,
        axis=axes.get(lane.group, ""),
        ranks=tuple(rows.ranks[r] for r in rows.rank[row]),
        start_skew_us=int(waits.start_skew_ns[index]) / 1000.0,
        end_skew_us=int(waits.end_skew_ns[index]) / 1000.0,
        last_rank=rows.ranks[int(rows.rank[waits.row[waits.last[index]]])],
        min_dur_us=transfer / 1000.0,
        max_dur_us=int(waits.longest_ns[index]) / 1000.0,
        wait_us=tuple((waits.wait_ns[low:high] / 1000.0).tolist()),
        bytes=moved,
        busbw_GBps=busbw_gb_per_s(message, transfer, size=size) if message else None,
    )
