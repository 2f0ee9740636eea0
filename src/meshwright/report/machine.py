"""JSON for machines: finite numbers, units in key names, a version that a change would raise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION = 1


def to_json(record: Mapping[str, Any]) -> str:
    """`record` as indented JSON with the format's version first; infinities and NaN become null."""
    return indented(_finite({"version": FORMAT_VERSION, **record}))


def indented(value: Any) -> str:
    """A value as JSON in a form of someone else's, indented."""
    encoded = msgspec.json.encode(value, enc_hook=_scalar)
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _scalar(value: Any) -> Any:
    """NumPy scalars and arrays as Python values."""
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return str(value)
