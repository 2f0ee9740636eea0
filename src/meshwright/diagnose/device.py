"""The catalogue's device of a trace."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.hardware import catalogue

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Gpu


@lru_cache(maxsize=32)
def device_named(name: str | None) -> Gpu | None:
    """The device of a name in a trace; drivers add words to it ("... MI300X VF"). None unknown."""
    words = (name or "").split()
    for count in range(len(words), 0, -1):
        try:
            return catalogue.gpu(" ".join(words[:count]))
        except MeshwrightError:
            continue
    return None
