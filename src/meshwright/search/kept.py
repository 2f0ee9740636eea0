"""Plans worth keeping: the best by an objective, and the Pareto front.

Sets are merged under a total order (cost, then the fields), so that what is kept depends neither on
the size nor on the order of the blocks it came from. Plans that look the same in a table (equal in
all but `HIDDEN` fields), or that are the same but for `DETAILS`, count once, by their best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.search.space import Table

HIDDEN = frozenset(
    {"sequence_parallel", "overlap_tp", "overlap_grad_reduce", "overlap_param_gather"}
)
DETAILS = HIDDEN | {
    "micro_batch_size",
    "vpp",
    "embedding_in_split",
    "loss_in_split",
    "recompute",
    "recompute_modules",
    "recompute_layers",
    "reshard_after_forward",
    "offload_optimizer",
    "offload_activations",
    "offload_params",
}
PIVOTS = 4  # points of the front against which a block is weeded first


@dataclass(slots=True, kw_only=True)
class Kept:
    """Some plans, best first: columns of the fields and of the costs.

    Seconds a step, allocated peak and required memory in bytes.
    """

    fields: Table
    step_s: NDArray[np.float64]
    peak_bytes: NDArray[np.float64]
    upper_bytes: NDArray[np.float64]

    def __len__(self) -> int:
        """Number of plans kept."""
        return len(self.step_s)

    def rows(self, rows: NDArray[Any]) -> Kept:
        """Some of the plans."""
        return Kept(
            fields={name: column[rows] for name, column in self.fields.items()},
            step_s=self.step_s[rows],
            peak_bytes=self.peak_bytes[rows],
            upper_bytes=self.upper_bytes[rows],
        )


def joined(ours: Kept | None, theirs: Kept | None) -> Kept | None:
    """Both sets, one after the other."""
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    return Kept(
        fields={n: np.concatenate([ours.fields[n], theirs.fields[n]]) for n in ours.fields},
        step_s=np.concatenate([ours.step_s, theirs.step_s]),
        peak_bytes=np.concatenate([ours.peak_bytes, theirs.peak_bytes]),
        upper_bytes=np.concatenate([ours.upper_bytes, theirs.upper_bytes]),
    )


def scores(kept: Kept, objective: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First and second key of the order by an objective."""
    if objective == "memory":
        return kept.upper_bytes, kept.step_s
    return kept.step_s, kept.upper_bytes


def best_of(
    kept: Kept | None, objective: str, keep: int, *, hidden: frozenset[str] = HIDDEN
) -> Kept | None:
    """The best `keep` plans that differ in more than `hidden` fields, ties broken by the fields."""
    if kept is None:
        return None
    for count in (8 * keep, len(kept)):
        some = _lowest(kept, objective, count)
        shown = some.rows(_first_of_each(some.fields, hidden))
        if len(shown) >= keep or len(some) == len(kept):
            break
    return shown.rows(np.arange(min(keep, len(shown))))


def _lowest(kept: Kept, objective: str, count: int) -> Kept:
    """At least `count` plans of the lowest scores, in order."""
    if len(kept) > count:
        first = scores(kept, objective)[0]
        kept = kept.rows(np.flatnonzero(first <= np.partition(first, count - 1)[count - 1]))
    first, second = scores(kept, objective)
    return kept.rows(np.lexsort((*kept.fields.values(), second, first)))


def _first_of_each(fields: Table, hidden: frozenset[str]) -> NDArray[Any]:
    """Places of the first plan of each look, ascending."""
    shown = [c.astype(np.float64) for name, c in fields.items() if name not in hidden]
    rows = zip(*(c.tolist() for c in shown), strict=True)
    places: dict[tuple[float, ...], int] = {}
    for place, row in enumerate(rows):
        places.setdefault(row, place)
    return np.array(list(places.values()), dtype=np.int64)


def threshold(kept: Kept | None, objective: str, keep: int) -> float:
    """The score beyond which nothing can enter a set that is full."""
    if kept is None or len(kept) < keep:
        return float("inf")
    return float(scores(kept, objective)[0][-1])


def weed(
    front: Kept | None,
    step: NDArray[np.float64],
    used: NDArray[np.float64],
    *,
    memory: str = "peak_bytes",
) -> NDArray[np.bool_]:
    """Plans that a few points of the front do not beat in both time and memory (`used`)."""
    alive = np.ones(step.shape, dtype=bool)
    if front is None or not len(front):
        return alive
    places = sorted({len(front) * part // PIVOTS for part in range(PIVOTS)})
    bytes_used = getattr(front, memory)
    for place in places:
        alive &= (step <= front.step_s[place]) | (used < bytes_used[place])
    return alive


def pareto(kept: Kept | None, *, memory: str = "peak_bytes") -> Kept | None:
    """The plans that no other beats in both step time and memory, fastest first."""
    if kept is None or not len(kept):
        return kept
    bytes_used = getattr(kept, memory)
    order = np.lexsort((*kept.fields.values(), bytes_used, kept.step_s))
    running = np.minimum.accumulate(bytes_used[order])
    better = np.concatenate([[True], running[1:] < running[:-1]])
    return kept.rows(order[better])
