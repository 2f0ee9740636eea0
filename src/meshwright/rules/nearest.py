"""Legal values near an illegal one: what a rule's fix proposes."""

from __future__ import annotations

import math
from typing import Any

LARGEST = 10**12  # beyond any count of GPUs, sequences or tokens: nothing sensible is near


def divisors(number: Any) -> tuple[int, ...]:
    """All divisors of a number from 1 to `LARGEST`, rising; none of any other."""
    number = int(number)
    if not 1 <= number <= LARGEST:
        return ()
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def divisors_near(number: Any, value: Any, *, limit: int = 3) -> tuple[int, ...]:
    """Up to `limit` divisors of `number` nearest to `value` (by ratio), in rising order."""
    value = max(int(value), 1)
    nearest = sorted(divisors(number), key=lambda d: (max(d, value) / min(d, value), d))
    return tuple(sorted(nearest[:limit]))


def multiples_near(step: Any, value: Any) -> tuple[int, ...]:
    """The multiples of `step` next below (if positive) and above `value`."""
    step, value = int(step), int(value)
    if step < 1:
        return ()
    below = value // step * step
    return tuple(m for m in (below, below + step) if m > 0)
