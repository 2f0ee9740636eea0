"""Which source each sample of a blend comes from: known for any sample without those before it.

Sources are the leaves of a binary tree. Of the first m samples that reach a fork,
round(m * share of the left side) go left, so a sample finds its source, and its number within that
source, by one multiplication at each fork. A source of weight w below forks of weights
W_1 ... W_d (the root left out) has, after any number of samples, at most
1/2 + w/2 * (1/W_1 + ... + 1/W_d) samples more or fewer than its share; `deviation` gives the bound.

The tree is Huffman's (1952), in which weights grow from a leaf upward at least as fast as the
Fibonacci numbers: the bound is 1/2 for two sources, below 1 for three, and below 1.69 for any
number of any weights.
"""

from __future__ import annotations

import heapq
import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FINEST = 2**31 - 1  # parts that the whole is divided into, at most


@dataclass(frozen=True, slots=True)
class Fork:
    """A place where samples part: `left_parts` of `parts` go left. A leaf is a source's number."""

    left: Fork | int
    right: Fork | int
    left_parts: int
    parts: int


def parts_of(weights: Sequence[float]) -> tuple[int, ...]:
    """Weights as whole numbers in the same proportion, exactly as they are written in decimals.

    Where that takes more than 2^31 parts they are rounded to 2^31 - 1 in all; a share then drifts
    by less than one sample in two billion.
    """
    exact = [Fraction(Decimal(repr(weight))) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    shrink = math.gcd(*whole)
    whole = [part // shrink for part in whole]
    return tuple(whole) if sum(whole) <= FINEST else _rounded(whole)


def _rounded(parts: Sequence[int]) -> tuple[int, ...]:
    """The largest remainders get what rounding down leaves over; none falls to zero."""
    total = sum(parts)
    room = FINEST - len(parts)
    floors = [1 + part * room // total for part in parts]
    remainders = [part * room % total for part in parts]
    order = sorted(range(len(parts)), key=lambda i: (-remainders[i], i))
    for number in order[: FINEST - sum(floors)]:
        floors[number] += 1
    return tuple(floors)


def tree_of(parts: Sequence[int]) -> Fork | int:
    """Huffman's tree over sources of these parts; ties go to the earlier source."""
    heap: list[tuple[int, int, Fork | int]] = [(part, i, i) for i, part in enumerate(parts)]
    heapq.heapify(heap)
    for number in range(len(parts), 2 * len(parts) - 1):
        light, _, right = heapq.heappop(heap)
        heavy, _, left = heapq.heappop(heap)
        fork = Fork(left, right, heavy, light + heavy)
        heapq.heappush(heap, (fork.parts, number, fork))
    return heap[0][2]


def interleaved(
    samples: NDArray[np.int64], tree: Fork | int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The source of each sample, and the number of the sample among those of its source."""
    sources = np.zeros(len(samples), dtype=np.int32)
    numbers = np.zeros(len(samples), dtype=np.int64)
    waiting = [(tree, np.arange(len(samples)), samples)]
    while waiting:
        node, places, reached = waiting.pop()
        if isinstance(node, int):
            sources[places], numbers[places] = node, reached
            continue
        before = _left_of(reached, node)
        goes_left = _left_of(reached + 1, node) > before
        goes_right = ~goes_left
        waiting.append((node.left, places[goes_left], before[goes_left]))
        waiting.append((node.right, places[goes_right], (reached - before)[goes_right]))
    return sources, numbers


def counts_of(samples: int, tree: Fork | int) -> dict[int, int]:
    """How many of the first `samples` each source gives."""
    if isinstance(tree, int):
        return {tree: samples}
    left = int(_left_of(np.array([samples]), tree)[0])
    return counts_of(left, tree.left) | counts_of(samples - left, tree.right)


def deviation(tree: Fork | int) -> float:
    """The most samples by which any source can ever be ahead of or behind its share."""
    return max(_deviations(tree, above=0.0, root=True))


def _deviations(node: Fork | int, *, above: float, root: bool) -> list[float]:
    """The bound of each leaf; `above` is the sum of 1/W over the forks passed below the root."""
    if isinstance(node, int):
        return [0.0]
    above = 0.0 if root else above + 1.0 / node.parts
    found: list[float] = []
    for child, parts in ((node.left, node.left_parts), (node.right, node.parts - node.left_parts)):
        if isinstance(child, int):
            found.append(0.5 + parts / 2 * above)
        else:
            found += _deviations(child, above=above, root=False)
    return found


def _left_of(samples: NDArray[np.int64], fork: Fork) -> NDArray[np.int64]:
    """round(samples * left_parts / parts), exact below 2^63 since parts are below 2^31."""
    whole, rest = np.divmod(samples, fork.parts)
    counted: NDArray[np.int64] = whole * fork.left_parts
    counted += (rest * fork.left_parts + fork.parts // 2) // fork.parts
    return counted
