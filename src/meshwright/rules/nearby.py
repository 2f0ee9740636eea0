"""Legal values near an illegal one, for the fixes of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.plan.job import Job


def nearest(value: int, accepts: Callable[[int], bool], *, limit: int) -> tuple[int, ...]:
    """The nearest accepted integers below and above `value`, within 1..limit; neither may exist."""
    below = next((v for v in range(min(int(value) - 1, limit), 0, -1) if accepts(v)), None)
    above = next((v for v in range(max(int(value), 0) + 1, limit + 1) if accepts(v)), None)
    return tuple(v for v in (below, above) if v is not None)


def multiples_around(value: int, unit: int) -> tuple[int, ...]:
    """The positive multiples of `unit` next to `value`, below and above."""
    below = int(value) // int(unit) * int(unit)
    return tuple(v for v in (below, below + int(unit)) if v > 0 and v != value)


def always(**values: tuple[Any, ...]) -> Callable[[Job], dict[str, tuple[Any, ...]]]:
    """A fix whose legal values do not depend on the job."""
    return lambda _: values
