"""Memory of a plan, per pipeline rank and moment of the step.

Public names are imported when first used: a rule on the logits needs none of the layers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "LAYER_FIELDS": "layer",
    "LayerBytes": "layer",
    "MEMORY": "meanings",
    "Memory": "total",
    "MemoryStack": "stack",
    "layer_bytes": "layer",
    "meaning_of": "meanings",
    "memory": "total",
    "memory_stack": "stack",
    "operands_of": "meanings",
    "shared_layer_bytes": "layer",
    "stage_memory": "total",
    "unit_of": "meanings",
}
__all__ = [
    "LAYER_FIELDS",
    "MEMORY",
    "LayerBytes",
    "Memory",
    "MemoryStack",
    "layer_bytes",
    "meaning_of",
    "memory",
    "memory_stack",
    "operands_of",
    "shared_layer_bytes",
    "stage_memory",
    "unit_of",
]

if TYPE_CHECKING:
    from meshwright.cost.memory.layer import (
        LAYER_FIELDS,
        LayerBytes,
        layer_bytes,
        shared_layer_bytes,
    )
    from meshwright.cost.memory.meanings import MEMORY, meaning_of, operands_of, unit_of
    from meshwright.cost.memory.stack import MemoryStack, memory_stack
    from meshwright.cost.memory.total import Memory, memory, stage_memory


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
