"""Memory of a plan, per pipeline rank and moment of the step."""

from meshwright.cost.memory.layer import LAYER_FIELDS, LayerBytes, layer_bytes, shared_layer_bytes
from meshwright.cost.memory.meanings import MEMORY, meaning_of, operands_of, unit_of
from meshwright.cost.memory.stack import MemoryStack, memory_stack
from meshwright.cost.memory.total import Memory, memory, stage_memory

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
