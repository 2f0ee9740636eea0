"""Which stage of the model each chunk of each pipeline rank holds."""

from __future__ import annotations

import numpy as np

from meshwright.cost.schedules.definition import Column, Placement

Slot = tuple[int, int]  # (rank, chunk)


def stage_of(placement: Placement, *, pp: Column, rank: Column, chunk: Column) -> Column:
    """Stage index in model order held by `chunk` of `rank`. Scalars or columns."""
    if placement == Placement.V:
        return np.where(np.equal(chunk, 0), rank, 2 * pp - 1 - rank)
    if placement == Placement.BOTH_WAYS:
        return np.where(np.equal(chunk, 0), rank, pp - 1 - rank)
    return chunk * pp + rank


def upstream(placement: Placement, *, pp: int, chunks: int) -> dict[Slot, Slot]:
    """For each (rank, chunk) but the first stage's, the one whose forward output it reads."""
    if placement == Placement.BOTH_WAYS:
        down = {(r, 0): (r - 1, 0) for r in range(1, pp)}
        return down | {(r, 1): (r + 1, 1) for r in range(pp - 1)}
    slots = [(r, c) for r in range(pp) for c in range(chunks)]
    slots.sort(key=lambda s: int(stage_of(placement, pp=pp, rank=s[0], chunk=s[1])))
    return dict(zip(slots[1:], slots[:-1], strict=True))
