"""The schedules there are."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.cost.schedules.definition import Definition


@cache
def definitions() -> tuple[Definition, ...]:
    """Every schedule of this folder, in the order of `Schedule`."""
    package = __name__.rpartition(".")[0]
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    own = __name__.rpartition(".")[2]
    modules = (importlib.import_module(f"{package}.{name}") for name in names if name != own)
    found = [m.DEFINITION for m in modules if hasattr(m, "DEFINITION")]
    return tuple(sorted(found, key=lambda d: (d.schedule, d.interleaved)))


def definition_of(schedule: int, *, vpp: int = 1) -> Definition:
    """The schedule of one plan; 1F1B with vpp > 1 is the interleaved one."""
    own = [d for d in definitions() if d.schedule == schedule]
    return own[-1] if vpp > 1 else own[0]


def describe() -> tuple[dict[str, str], ...]:
    """One row per schedule: name, paper, bubble, memory, constraints, exactness."""
    fields = ("name", "paper", "bubble", "memory", "constraints", "exactness")
    return tuple({field: getattr(d, field) for field in fields} for d in definitions())
