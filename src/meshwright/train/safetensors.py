"""Writing the safetensors format a piece at a time, hashed on the way.

Header length, JSON header, values end to end (huggingface/safetensors 0.8). `safetensors.torch`
would want all tensors of a file in memory at once, and a second copy of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from meshwright.data.shards.hashed import HashedFile

TYPES = {  # names of types in a header
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A tensor before it is there."""

    dtype: str  # without "torch."
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """What its values take."""
        return bytes_of(self.dtype, self.shape)


def bytes_of(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of so many values."""
    kind: Any = getattr(torch, dtype)
    size: int = kind.itemsize
    for extent in shape:
        size *= extent
    return size


def write(
    file: HashedFile,
    outlines: Mapping[str, Outline],
    tensors: Iterable[Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a file of the tensors outlined; `tensors` yields their values in the same order."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, outline in outlines.items():
        start, end = end, end + outline.bytes
        header[name] = {
            "dtype": TYPES[outline.dtype],
            "shape": list(outline.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for tensor in tensors:
        file.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
