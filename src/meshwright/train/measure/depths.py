"""Deep models from shallow ones: which depths to read, and the straight line through them.

Equal layers take equal memory and traffic, so that both are straight lines in the number of layers
of a stage, and in the number of micro-batches where no more of them are in flight.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.model.architecture import Block
    from meshwright.train.stage import Place

LEAST = 4  # layers of the repeating part: the first and the last two are told apart
STEP = 2
LONGEST_PERIOD = 8  # of layers that differ by turns
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Depths:
    """Layers of one stage: `wanted`, and the `low` and `high` that are read instead."""

    wanted: int
    low: int
    high: int

    @property
    def factor(self) -> float:
        """How often the difference between high and low is added to low; 0 where low is all."""
        return (self.wanted - self.low) / (self.high - self.low) if self.high > self.low else 0.0


def depths_of(blocks: Sequence[Block], *, extend: bool = True) -> Depths:
    """Two depths of a stage of these layers from which all of it follows, or its own depth twice.

    The layers before the repeating ones (dense ones before routed ones) are all kept, and depths
    differ by whole periods of the repeating part.
    """
    kinds = [_costs(block) for block in blocks]
    total = len(kinds)
    lead, period = _repeating(kinds)
    step = -(-STEP // period) * period
    low = lead + LEAST
    low += (total - low) % step
    if low + step >= total or not extend:
        return Depths(wanted=total, low=total, high=total)
    return Depths(wanted=total, low=low, high=low + step)


def _costs(block: Block) -> Block:
    """The block as memory and traffic see it: a sliding window changes neither."""
    return replace(block, attention=replace(block.attention, window=None, chunked=False))


def _repeating(kinds: Sequence[Any]) -> tuple[int, int]:
    """(layers before the part that repeats to the end, its period), the longest such part."""
    found = [(_lead(kinds, period), period) for period in range(1, LONGEST_PERIOD + 1)]
    return min(found)


def _lead(kinds: Sequence[Any], period: int) -> int:
    """The first layer from which each equals the one a period later."""
    index = max(len(kinds) - period, 0)
    while index > 0 and kinds[index - 1] == kinds[index - 1 + period]:
        index -= 1
    return index


def shortened(place: Place, layers: int) -> Place:
    """The place with its first `layers` layers alone."""
    return replace(place, last_layer=place.first_layer + layers)


def along(
    low: Mapping[Key, float], others: Sequence[tuple[Mapping[Key, float], float]]
) -> dict[Key, float]:
    """low + sum of factor * (other - low), key by key.

    What a deeper model has beside lies between what both have: its middle layers.
    """
    return {
        key: value + sum(factor * (other[key] - value) for other, factor in others)
        for key, value in low.items()
    }


def groups_of(depths: Sequence[Depths]) -> list[tuple[Depths, list[int]]]:
    """Stages that need a second depth, equal ones together: each group is one more reading."""
    groups: dict[tuple[Any, ...], tuple[Depths, list[int]]] = {}
    for index, depth in enumerate(depths):
        if depth.high > depth.low:
            key = tuple(getattr(depth, f.name) for f in fields(depth))
            groups.setdefault(key, (depth, []))[1].append(index)
    return list(groups.values())
