"""The critical path of a rank, as kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One stretch of the path: who worked ("host", "device", "communication", ...) and on what."""

    kind: str
    name: str
    start_us: float  # since the window began
    dur_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The chain of work and waits that the window's length hangs on; its parts sum to the window.

    `by_kind_us` sums the path by kind and `what_if_us` says how long a step would take if that
    were free ("communication", "data_loading", "host_launch", "memory_copy", ... or the axis of a
    plan, "tp"), by replaying the rest of the graph.
    """

    window_us: float
    by_kind_us: Mapping[str, float]
    what_if_us: Mapping[str, float]
    longest: tuple[Stretch, ...]  # the longest stretches
