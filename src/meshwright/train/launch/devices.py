"""GPUs of this node, told without torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NONE = ("", "-1", "NoDevFiles")


def visible_gpus(
    environment: Mapping[str, str] | None = None, *, devices: Path = Path("/dev")
) -> int:
    """GPUs that a process here may use: those that CUDA_VISIBLE_DEVICES names, else all."""
    known = os.environ if environment is None else environment
    there = sum(path.name.removeprefix("nvidia").isdigit() for path in devices.glob("nvidia*"))
    named = known.get(_VISIBLE)
    if named is None:
        return there
    first = next((i for i, name in enumerate(named.split(",")) if name.strip() in _NONE), None)
    return min(len(named.split(",")) if first is None else first, there)
