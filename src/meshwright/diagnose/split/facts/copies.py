"""Copies between host and device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.split.intervals import subtract, total

if TYPE_CHECKING:
    from meshwright.diagnose.split.facts.view import View

# "Memcpy HtoD (Pageable -> Device)", "CopyHostToDevice", "MEMCPY_ASYNC_H2D"
TO_DEVICE = re.compile(r"HtoD|Host ?To ?Device|H2D", re.IGNORECASE)
TO_HOST = re.compile(r"DtoH|Device ?To ?Host|D2H", re.IGNORECASE)
PAGEABLE = re.compile(r"(HtoD|Host ?To ?Device|H2D).*Pageable", re.IGNORECASE)


def copy_facts(view: View) -> dict[str, float]:
    """How many copies each way, their bytes, and what of them nothing hid."""
    found: dict[str, float] = {}
    size = view.trace.device.bytes
    for name, pattern in (("h2d", TO_DEVICE), ("d2h", TO_HOST)):
        mine = view.within & ~view.kernel & view.named(pattern)
        found[f"{name}_calls"] = float(mine.sum())
        found[f"{name}_exposed_us"] = total(subtract(view.spans(mine), view.work.active)) / 1000
        if mine.any() and (size[mine] >= 0).any():
            found[f"{name}_bytes"] = float(np.maximum(size[mine], 0).sum())
    pageable = ~view.kernel & view.named(PAGEABLE)
    found["h2d_pageable_us"] = total(subtract(view.spans(pageable), view.work.active)) / 1000
    found["h2d_pageable_calls"] = float(pageable.sum())
    return found
