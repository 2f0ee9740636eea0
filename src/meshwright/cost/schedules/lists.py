"""Operation lists of one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.cost.schedules.catalogue import definition_of

if TYPE_CHECKING:
    from meshwright.cost.schedules.definition import Operation


def operations(
    schedule: int, *, pp: int, vpp: int = 1, num_microbatches: int
) -> list[list[Operation]]:
    """Operations of each pipeline rank in order.

    Each micro-batch passes each chunk of its rank once forward and once backward; schedules that
    split the backward pass list input and weight gradient apart. Raises `MeshwrightError` for sizes
    below 1 and where the schedule cannot be built.
    """
    for name, value in (("pp", pp), ("vpp", vpp), ("num_microbatches", num_microbatches)):
        if value < 1:
            raise MeshwrightError(f"{name} must be at least 1, not {value}")
    definition = definition_of(schedule, vpp=vpp)
    return definition.operations(pp, definition.chunks or vpp, num_microbatches)
