"""tensors.json: where every piece of every tensor of a checkpoint lies.

Torch's own checkpoints keep this in `.metadata`, a pickle, and their tensors in zip files of
pickles. Ours are safetensors and JSON, so that reading one can run nothing.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from torch import dtype as DType  # noqa: N812

INDEX = "tensors.json"
FORMAT = 1
LARGEST_BYTES = 4 << 30
DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A block of a tensor, stored under the tensor's name, "@" and where it starts."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor: its whole shape, and the pieces that make it up."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """All of tensors.json. `values` are what optimizers keep beside tensors."""

    format: int = FORMAT
    tensors: dict[str, Entry]
    values: dict[str, bool | int | float | str | None]


def key_of(name: str, start: tuple[int, ...]) -> str:
    """The name of a piece in its file."""
    return f"{name}@{','.join(map(str, start))}"


def name_of(dtype: DType) -> str:
    """A type without torch's prefix."""
    return str(dtype).removeprefix("torch.")


def type_of(entry: Entry) -> DType:
    """The type of an entry, which was checked when it was read."""
    import torch

    found: Any = getattr(torch, entry.dtype)
    return found


def read_index(path: Path) -> Index:
    """The index at `path`; InvalidInput where it is none, or its pieces do not make up tensors."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise _wrong(path, "is larger than any index")
        index = msgspec.json.decode(path.read_bytes(), type=Index)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(path, f"is no index of tensors: {error}") from None
    if index.format != FORMAT:
        raise _wrong(path, f"is of format {index.format}; this version reads {FORMAT}")
    for name, entry in index.tensors.items():
        if complaint := _complaint(entry):
            raise _wrong(path, f"{complaint} ({name})")
    return index


def _complaint(entry: Entry) -> str:
    """What no writer of ours writes; "" for nothing."""
    if entry.dtype not in DTYPES:
        return f"names the type {entry.dtype!r}"
    if any(size < 0 for size in entry.shape):
        return f"has the shape {entry.shape}"
    for piece in entry.pieces:
        if "/" in piece.file or "\\" in piece.file or not piece.file.endswith(".safetensors"):
            return f"names the file {piece.file!r}"
        if not len(piece.start) == len(piece.size) == len(entry.shape):
            return "has a piece of other dims than its tensor"
        bounds = zip(piece.start, piece.size, entry.shape, strict=True)
        if not all(
            start >= 0 and size > 0 and start + size <= whole for start, size, whole in bounds
        ):
            return "has a piece outside of its tensor"
    if sum(prod(piece.size) for piece in entry.pieces) != prod(entry.shape):
        return "has pieces that do not make up their tensor"
    return ""


def _wrong(path: Path, reason: str) -> InvalidInput:
    hint = "resume from an older checkpoint: `--resume` takes the newest that is whole"
    return InvalidInput([Finding(message=f"{path.name} {reason}", file=str(path), hint=hint)])
