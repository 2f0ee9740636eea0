"""Deals the rows of a global batch to ranks so that all have the same work.

Every rank deals alike from the same costs, so nothing is communicated. Rows go, costliest first,
to micro-batches, and micro-batches to ranks, each to whichever has the least so far and room left
(the LPT rule of Graham 1969, "Bounds on Multiprocessing Timing Anomalies", with equal counts).
Level are therefore the sum over a step (what all ranks wait for) and, since every rank takes its
costliest micro-batch first, those of one moment (what ranks wait for that shard their weights).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Cost of the costliest rank over the mean of all, as rows come and as they were dealt."""

    before: float
    after: float


def in_order(rows: int, *, dp_size: int, micro_batch_size: int) -> NDArray[np.int64]:
    """Places in the batch [dp_size, micro_batches, micro_batch_size], as rows come.

    Micro-batch m of all ranks precedes micro-batch m + 1 of any, as in Megatron.
    """
    shape = (-1, dp_size, micro_batch_size)
    return np.arange(rows).reshape(shape).swapaxes(0, 1)


def leveled(costs: NDArray[Any], *, dp_size: int, micro_batch_size: int) -> NDArray[np.int64]:
    """Places in the batch [dp_size, micro_batches, micro_batch_size] with even sums of costs."""
    if dp_size == 1:
        return in_order(len(costs), dp_size=1, micro_batch_size=micro_batch_size)
    groups = len(costs) // micro_batch_size
    rows = _rounds(costs, groups)  # [micro_batch_size, groups]
    batches = _rounds(costs[rows].sum(axis=0), dp_size)  # [micro_batches, dp_size]
    return rows[:, batches].transpose(2, 1, 0)


def imbalance(costs: NDArray[Any], dealt: NDArray[np.int64]) -> Imbalance:
    """How uneven ranks are, before and after."""
    dp_size, _, micro_batch_size = dealt.shape
    plain = in_order(len(costs), dp_size=dp_size, micro_batch_size=micro_batch_size)
    return Imbalance(_unevenness(costs[plain]), _unevenness(costs[dealt]))


def _unevenness(costs: NDArray[Any]) -> float:
    sums = costs.sum(axis=(1, 2), dtype=np.float64)
    return float(sums.max() / sums.mean()) if sums.any() else 1.0


def _rounds(costs: NDArray[Any], bins: int) -> NDArray[np.int64]:
    """[rounds, bins]: the items of each bin, costliest first; every item once."""
    room = len(costs) // bins
    values = costs.tolist()
    dealt: list[list[int]] = [[] for _ in range(bins)]
    loads = [(0, number) for number in range(bins)]  # of bins with room: a heap
    for item in np.argsort(-costs, kind="stable").tolist():
        load, number = heapq.heappop(loads)
        dealt[number].append(item)
        if len(dealt[number]) < room:
            heapq.heappush(loads, (load + values[item], number))
    return np.array(dealt, dtype=np.int64).T
