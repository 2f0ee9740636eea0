"""Of all tests: hypothesis without deadlines, the same examples in CI, and times on busy machines.

A machine that others use can take three times as long as it does alone, and more for a moment. What
is measured is therefore CPU time, the least of a few tries, and a bound leaves a factor of ten on
what a thing takes alone; time that must grow with the input is compared with that of an eighth.
"""

from __future__ import annotations

import gc
import os
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW_MACHINE = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]

settings.register_profile("default", deadline=None, suppress_health_check=SLOW_MACHINE)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

_TRIES = 3
_MOST = 24.0  # times an eighth: 8 where time is linear, 64 where it is quadratic
_TINY_S = 0.1  # the whole may always take this


@pytest.fixture(name="cpu_s")
def _cpu_s() -> Callable[[Callable[[], object]], float]:
    """Measures the CPU seconds of a call, the least of a few."""
    return lambda call: min(_once_s(call) for _ in range(_TRIES))


@pytest.fixture(name="assert_linear")
def _assert_linear(cpu_s) -> Callable[..., None]:
    """Checks that time grows no faster than the size, and stays below `limit_s`.

    `prepared(size)` makes the input and returns the call that is measured.
    """

    def check(
        prepared: Callable[[int], Callable[[], object]], size: int, *, limit_s: float
    ) -> None:
        eighth_s = cpu_s(prepared(size // 8))
        whole = prepared(size)
        for left in reversed(range(_TRIES)):
            whole_s = _once_s(whole)
            assert whole_s < limit_s
            if whole_s < max(_MOST * eighth_s, _TINY_S):
                return
            assert left, f"{whole_s:.3g} s, and an eighth of it takes {eighth_s:.3g} s"

    return check


def _once_s(call: Callable[[], object]) -> float:
    """CPU seconds of one call, without collections of what other tests left behind."""
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        call()
        return time.process_time() - started
    finally:
        gc.enable()
