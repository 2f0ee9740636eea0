"""What tests ask of a reading."""

from __future__ import annotations

from typing import Any

from meshwright.frameworks.reading import Reading


def values(reading: Reading, *names: str) -> tuple[Any, ...]:
    """The values of variables, None for one that nothing states."""
    return tuple(reading.value(name) for name in names)
