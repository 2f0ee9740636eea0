"""torch.compile, a layer at a time: one compilation serves all layers that are alike."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding

if TYPE_CHECKING:
    from meshwright.train.stage import Stage

_COMPILERS = ("c++", "g++", "clang++")


def apply(stage: Stage, *, device_type: str) -> None:
    """Has every layer of a stage compiled when it first runs; InvalidInput without a compiler."""
    found = missing(device_type)
    if found:
        raise InvalidInput(found)
    for layer in stage.layers:
        layer.compile()


def missing(device_type: str) -> list[Finding]:
    """Why nothing can be compiled on this machine; empty where it can."""
    compiler = os.environ.get("CXX") or next(filter(shutil.which, _COMPILERS), "")
    if device_type == "cpu" and not shutil.which(compiler):
        return [
            Finding(
                message="torch.compile needs a C++ compiler on a CPU, and there is none",
                key="plan.compile",
                value=True,
                hint="install g++, or plan.compile = false",
            )
        ]
    return []
