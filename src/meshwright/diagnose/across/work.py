"""What each rank did of its own in each step, beside the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.across.table import Doubles, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.rank import Attribution, Rank

PARTS = {  # what holds a rank up, by the parts of an attribution
    "compute": ("compute",),
    "data_loading": ("idle_dataloader",),
    "host": (
        *("idle_host_late_launch", "idle_launch_latency", "idle_malloc_free"),
        *("idle_checkpoint", "idle_profiler", "idle_unknown_launch_not_in_trace"),
    ),
    "memory_copy": ("exposed_memory",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Microseconds by rank and step (both as in `Rows`); nan where a rank lacks the step."""

    by_part_us: Mapping[str, Doubles]
    step_us: Doubles

    @property
    def own_us(self) -> Doubles:
        """What the rank did by itself: the step without communication and waits."""
        total: Doubles = np.sum([self.by_part_us[name] for name in PARTS], axis=0)
        return total


def work_of(ranks: Sequence[Rank], rows: Rows, waits: Waits) -> Work:
    """The work of ranks whose steps were accounted for; one step where a trace has none.

    "communication" is what transfers held up, without the waits: more than on others over a slow
    link.
    """
    steps = rows.steps
    number = {name: i for i, name in enumerate(steps)}
    shape = (len(ranks), max(len(steps), 1))
    parts = {name: np.full(shape, np.nan) for name in PARTS}
    length = np.full(shape, np.nan)
    for i, rank in enumerate(ranks):
        for step, part in zip(rank.device_steps, rank.step_attributions, strict=False):
            j = number[step.name]
            length[i, j] = step.dur_us
            _fill(parts, part, (i, j))
        if not rank.device_steps and rank.attribution is not None:
            length[i, 0] = rank.attribution.window_us
            _fill(parts, rank.attribution, (i, 0))
    moved = np.where(np.isnan(length), np.nan, _transfers_us(rows, waits, shape))
    return Work(by_part_us=parts | {"communication": moved}, step_us=length)


def _transfers_us(rows: Rows, waits: Waits, shape: tuple[int, int]) -> Doubles:
    """Communication that no computation hid, less the waits in it, by rank and step."""
    exposed = rows.exposed_ns[waits.row]
    moved = exposed - np.minimum(waits.wait_ns, exposed)
    step = rows.step[waits.row] if rows.steps else np.zeros(len(waits.row), np.int64)
    inside = step >= 0
    key = rows.rank[waits.row][inside].astype(np.int64) * shape[1] + step[inside]
    cells = np.bincount(key, weights=moved[inside], minlength=shape[0] * shape[1])
    return cells.reshape(shape) / 1000.0


def _fill(parts: Mapping[str, Doubles], told: Attribution, at: tuple[int, int]) -> None:
    for name, column in parts.items():
        column[at] = sum(told.parts_us.get(part, 0.0) for part in PARTS[name])


def over_others(value: Doubles, rank: int, steps: Sequence[int]) -> tuple[float, float]:
    """A rank's mean over steps, and the mean of the medians of the others; 0 where unknown."""
    own = value[rank, steps]
    rest = np.delete(value, rank, axis=0)[:, steps]
    known = ~np.isnan(own) & ~np.isnan(rest).all(axis=0)
    if not known.any():
        return 0.0, 0.0
    return float(own[known].mean()), float(np.nanmedian(rest[:, known], axis=0).mean())
