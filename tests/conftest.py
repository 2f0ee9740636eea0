"""Settings of all tests: hypothesis without deadlines, and in CI the same examples every time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SLOW_MACHINE = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]

settings.register_profile("default", deadline=None, suppress_health_check=SLOW_MACHINE)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
