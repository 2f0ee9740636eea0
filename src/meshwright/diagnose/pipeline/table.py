"""Operations of a run as arrays over [node, data-parallel rank, step].

A node is an operation of a worker in a step, the same in every step and on every data-parallel
rank: (stage, kind, which one of its kind). Steps or ranks that lack an operation which the others
have cannot be replayed and are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.diagnose.pipeline.operations import Floats, Longs, Operations


SPARSE = 16  # places to an operation beyond which rows and columns are none of a pipeline
SMALL = 1 << 20  # places that are harmless
CELLS = 1 << 22  # operations that are replayed: of longer traces, evenly chosen steps


class Node(NamedTuple):
    """An operation's place: `seq` counts those of its kind on the stage, by their start."""

    pp: int
    kind: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Starts and durations in microseconds since each step began, shape [nodes, dps, steps].

    `dps` and `steps` are the numbers of the data-parallel ranks and steps that are whole; `chunk`
    and `mb` are those of the nodes, -1 unknown; `span_us` is the length of each step as measured.
    """

    nodes: tuple[Node, ...]
    chunk: Longs
    mb: Longs
    dps: tuple[int, ...]
    steps: tuple[int, ...]
    start_us: Floats
    dur_us: Floats
    span_us: Floats
    left: tuple[Left, ...] = ()

    @property
    def end_us(self) -> Floats:
        """When each operation ended."""
        return self.start_us + self.dur_us


def table_of(operations: Operations) -> Table | None:
    """The operations of all whole steps; None where no step is whole on all of its stages."""
    steps, step = np.unique(operations.step, return_inverse=True)
    dps, dp = np.unique(operations.dp, return_inverse=True)
    keys = np.stack([operations.pp, operations.kind, operations.seq], axis=1)
    found, node = np.unique(keys, axis=0, return_inverse=True)
    node = node.reshape(-1)
    if len(found) * len(dps) * len(steps) > SPARSE * len(operations) + SMALL:
        return None
    index = np.full((len(found), len(dps), len(steps)), -1, dtype=np.int64)
    index[node, dp, step] = np.arange(len(operations))
    kept_node, kept_dp, kept_step = _whole(index >= 0)
    if not (kept_node.any() and kept_dp.any() and kept_step.any()):
        return None
    kept_step = _fewer(kept_step, int(kept_node.sum() * kept_dp.sum()))
    used = index[np.ix_(kept_node, kept_dp, kept_step)]
    start = operations.start_us[used]
    dur = operations.dur_us[used]
    origin = start.min(axis=(0, 1))
    first = used[:, 0, 0]
    return Table(
        nodes=tuple(Node(int(p), operations.kinds[k], int(s)) for p, k, s in found[kept_node]),
        chunk=operations.chunk[first],
        mb=operations.mb[first],
        dps=tuple(map(int, dps[kept_dp])),
        steps=tuple(map(int, steps[kept_step])),
        start_us=start - origin,
        dur_us=dur,
        span_us=(start + dur).max(axis=(0, 1)) - origin,
        left=_left(operations, kept_node[node] & kept_dp[dp] & kept_step[step]),
    )


def _fewer(kept: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """Of the steps, each with so many operations, as many as can be replayed, evenly chosen."""
    numbers = np.flatnonzero(kept)
    count = max(CELLS // max(size, 1), 1)
    if len(numbers) <= count:
        return kept
    chosen = np.zeros_like(kept)
    chosen[numbers[np.linspace(0, len(numbers) - 1, count).round().astype(np.int64)]] = True
    return chosen


def _whole(
    there: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Nodes that most workers have in most steps; the ranks and steps that have all of them."""
    nodes = there.mean(axis=(1, 2)) > 0.5
    have = there[nodes].all(axis=0)
    dps = have.mean(axis=1) >= max(0.5 * have.mean(axis=1).max(initial=0.0), 1e-9)
    steps = have[dps].all(axis=0)
    return nodes, dps, steps


def _left(operations: Operations, kept: NDArray[np.bool_]) -> tuple[Left, ...]:
    if kept.all():
        return ()
    return (
        Left(
            what="operations left out of the replay",
            count=int((~kept).sum()),
            time_us=float(operations.dur_us[~kept].sum()),
            reason="their step or rank lacks operations that others have, or enough are replayed",
        ),
    )
