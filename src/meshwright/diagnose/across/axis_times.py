"""Communication by axis: how long, how much of it exposed, waiting and moving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.across.bus import payload_bytes
from meshwright.diagnose.across.noun import AxisTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.across.table import Doubles, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.rank import Rank


def axis_times(
    rows: Rows, waits: Waits, ranks: Sequence[Rank], axes: Mapping[str, str]
) -> tuple[AxisTime, ...]:
    """One entry for each axis, most time first; "" are groups whose axis nobody tells.

    Collectives outside of steps do not count, where a trace has steps.
    """
    words = [axes.get(lane.group, "") for lane in rows.lanes]
    names = sorted(set(words))
    axis = np.array([names.index(word) for word in words], np.int64)[rows.lane]
    per_step = _weights(rows, ranks)
    wait = np.zeros(len(rows))
    wait[waits.row] = waits.wait_ns
    met = np.zeros(len(rows), bool)
    met[waits.row] = True
    shown = rows.exposed_ns - np.minimum(wait, rows.exposed_ns)
    moved = np.array([payload_bytes(k.message) or 0 if k.message else 0 for k in rows.kinds], float)
    length = (rows.end_ns - rows.start_ns).astype(float)

    def summed(value: Doubles) -> list[float]:
        found: list[float] = np.bincount(
            axis, weights=value * per_step, minlength=len(names)
        ).tolist()
        return found

    columns = zip(
        names,
        summed(length / 1000.0),
        summed(rows.exposed_ns / 1000.0),
        summed(wait / 1000.0),
        summed(np.where(met, length, 0.0) / 1000.0),
        summed(np.where(met, shown, 0.0) / 1000.0),
        summed(np.ones(len(rows))),
        summed(moved[rows.kind]),
        strict=True,
    )
    found = [
        AxisTime(
            axis=name,
            total_us=total,
            exposed_us=exposed,
            wait_us=waited if matched else None,
            transfer_us=matched - waited if matched else None,
            calls=calls,
            bytes=size,
            exposed_transfer_us=bare if matched else None,
        )
        for name, total, exposed, waited, matched, bare, calls, size in columns
        if calls
    ]
    return tuple(sorted(found, key=lambda a: -a.total_us))


def _weights(rows: Rows, ranks: Sequence[Rank]) -> Doubles:
    """What makes sums over rows means over ranks and steps."""
    steps = np.array([max(len(r.device_steps), 1) for r in ranks], float)
    stepped = np.array([bool(r.device_steps) for r in ranks], bool)
    inside = ~stepped[rows.rank] | (rows.step >= 0)
    weights: Doubles = np.where(inside, 1.0 / (steps[rows.rank] * len(ranks)), 0.0)
    return weights
