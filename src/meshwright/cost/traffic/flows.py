"""The nouns of traffic: which pieces of it a rank has, on which axis, by which collective."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Traffic of one cause: `calls` a step, each of a full tensor of `call_bytes`.

    The full tensor is what an all-gather puts out, what a reduce-scatter, all-reduce or all-to-all
    takes in, and what is sent or received. `part` names the cause within axis and collective.
    """

    axis: str
    collective: str
    part: str
    calls: float
    call_bytes: float
    formula: str
    source: str
    operands: Mapping[str, float] = field(default_factory=dict)

    @property
    def total_bytes(self) -> float:
        """Bytes a step."""
        return self.calls * self.call_bytes


def by_lane(pieces: Iterable[Piece]) -> dict[tuple[str, str], tuple[float, float]]:
    """(calls, bytes) by axis and collective."""
    total: dict[tuple[str, str], tuple[float, float]] = {}
    for piece in pieces:
        calls, size = total.get((piece.axis, piece.collective), (0.0, 0.0))
        key = (piece.axis, piece.collective)
        total[key] = (calls + piece.calls, size + piece.total_bytes)
    return total
