"""Memory of a plan, per pipeline rank and moment of the step."""

from meshwright.cost.memory.layer import LAYER_FIELDS, LayerBytes, layer_bytes, shared_layer_bytes
from meshwright.cost.memory.stack import MemoryStack, memory_stack
from meshwright.cost.memory.total import Memory, memory, stage_memory

__all__ = [
    "LAYER_FIELDS",
    "LayerBytes",
    "Memory",
    "MemoryStack",
    "layer_bytes",
    "memory",
    "memory_stack",
    "shared_layer_bytes",
    "stage_memory",
]
