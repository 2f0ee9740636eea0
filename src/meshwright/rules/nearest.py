"""Legal values near an illegal one: what a rule's fix proposes."""

from __future__ import annotations

from typing import Any


def divisors_near(number: Any, value: Any, *, limit: int = 3) -> tuple[int, ...]:
    """Up to `limit` divisors of `number` nearest to `value` (by ratio), in rising order."""
    number, value = int(number), max(int(value), 1)
    if number < 1:
        return ()
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    divisors = {*small, *(number // d for d in small)}
    nearest = sorted(divisors, key=lambda d: (max(d, value) / min(d, value), d))
    return tuple(sorted(nearest[:limit]))


def multiples_near(step: Any, value: Any) -> tuple[int, ...]:
    """The multiples of `step` next below (if positive) and above `value`."""
    step, value = int(step), int(value)
    if step < 1:
        return ()
    below = value // step * step
    return tuple(m for m in (below, below + step) if m > 0)
