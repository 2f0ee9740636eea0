"""Accepted values near a refused one, for fixes that no single number divides or multiplies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def accepted_near(value: int, accepts: Callable[[int], bool], *, limit: int) -> tuple[int, ...]:
    """The nearest accepted integers below and above `value`, within 1..limit; neither may exist."""
    below = next((v for v in range(min(int(value) - 1, limit), 0, -1) if accepts(v)), None)
    above = next((v for v in range(max(int(value), 0) + 1, limit + 1) if accepts(v)), None)
    return tuple(v for v in (below, above) if v is not None)
