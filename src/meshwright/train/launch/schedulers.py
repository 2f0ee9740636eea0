"""Schedulers by name; one more is one more file and one more line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from meshwright.base.errors import UnknownName
from meshwright.base.names import nearest

if TYPE_CHECKING:
    from meshwright.train.launch.target import Target

SCHEDULERS = ("slurm", "kubernetes", "ray", "skypilot", "torchrun")


def job_file(scheduler: str, target: Target) -> str:
    """The text of the file that runs `target` on a scheduler."""
    if scheduler not in SCHEDULERS:
        raise UnknownName("scheduler", scheduler, suggestions=nearest(scheduler, SCHEDULERS))
    text: str = import_module(f"meshwright.train.launch.{scheduler}").job_file(target)
    return text
