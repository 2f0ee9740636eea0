"""Megatron's indexed data set: X.bin holds tokens end to end, X.idx says where each sequence lies.

Byte for byte what megatron/core/datasets/indexed_dataset.py of megatron-core 0.19 writes and reads;
all little endian: magic, version, code of the type, count of sequences, count of documents + 1,
then the length (i4) and byte offset (i8) of each sequence, and the sequence at which each document
begins (i8), closed by the count of sequences. Multimodal files append a mode (i1) a sequence.
"""

from __future__ import annotations

import contextlib
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.shards.damage import damaged
from meshwright.data.shards.hashed import creating

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

    from meshwright.data.shards.hashed import HashedFile, Written

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")  # 34 bytes
CODES = {"u1": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "f8": 6, "f4": 7, "u2": 8}
_TYPES = {code: np.dtype(f"<{name}") for name, code in CODES.items()}
_BLOCK = 1 << 20  # sequences handled at once
LONGEST = 2**31 - 1  # tokens of a sequence


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """The type that Megatron gives to ids of a vocabulary: u2 below 65,500 ids, else i4."""
    return np.dtype("<u2") if vocab_size < 65_500 else np.dtype("<i4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """An opened pair of files, mapped into memory."""

    tokens: NDArray[Any]  # of all sequences, end to end
    lengths: NDArray[np.int32]  # [sequences]
    offsets: NDArray[np.int64]  # bytes into .bin [sequences]
    documents: NDArray[np.int64]  # [documents + 1]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, sequence: int) -> NDArray[Any]:
        """The tokens of one sequence, a view of the file."""
        start = int(self.offsets[sequence]) // self.tokens.itemsize
        return self.tokens[start : start + int(self.lengths[sequence])]


# Writing


class IndexedWriter:
    """Writes sequences as they come; holds 4 bytes of memory for each until it is closed."""

    def __init__(self, tokens: HashedFile, index: HashedFile, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._tokens, self._index = tokens, index
        self._lengths: list[NDArray[np.int32]] = []

    def append(self, tokens: NDArray[Any], lengths: NDArray[np.integer]) -> None:
        """Sequences end to end and the length of each, every one a document of its own."""
        if int(lengths.sum(dtype=np.int64)) != len(tokens):
            raise ValueError("lengths do not add up to the tokens")
        self._tokens.write(np.ascontiguousarray(tokens, dtype=self.dtype))
        self._lengths.append(lengths.astype("<i4"))

    def close(self) -> None:
        """Writes the index."""
        count = sum(map(len, self._lengths))
        code = CODES[self.dtype.str[1:]]
        self._index.write(HEADER.pack(MAGIC, 1, code, count, count + 1))
        for lengths in self._lengths:
            self._index.write(lengths)
        start = 0
        for lengths in self._lengths:
            ends = start + np.cumsum(lengths, dtype="<i8") * self.dtype.itemsize
            self._index.write(ends - lengths.astype("<i8") * self.dtype.itemsize)
            start = int(ends[-1]) if len(ends) else start
        for first in range(0, count + 1, _BLOCK):
            self._index.write(np.arange(first, min(first + _BLOCK, count + 1), dtype="<i8"))


@contextlib.contextmanager
def writing(prefix: Path, dtype: DTypeLike) -> Iterator[tuple[IndexedWriter, dict[str, Written]]]:
    """A pair of files prefix.bin and prefix.idx, there when the block ends without an exception.

    Also yields a dictionary that then holds the size and digest of both, by name.
    """
    names = [f"{prefix.name}.bin", f"{prefix.name}.idx"]
    written: dict[str, Written] = {}
    with (
        creating(prefix.with_name(names[1])) as index,
        creating(prefix.with_name(names[0])) as tokens,
    ):
        writer = IndexedWriter(tokens, index, dtype)
        yield writer, written
        writer.close()
    written |= {names[0]: tokens.written, names[1]: index.written}


# Reading


def open_indexed(prefix: Path, *, check: bool = True) -> Indexed:
    """The pair prefix.bin and prefix.idx; InvalidInput with a finding when they are not sound.

    Without `check` only sizes are looked at, for files that were looked into before.
    """
    index_path, tokens_path = (prefix.with_name(prefix.name + end) for end in (".idx", ".bin"))
    try:
        index, tokens = _mapped(index_path), _mapped(tokens_path)
    except OSError as error:
        raise damaged(error.filename, error.strerror or str(error)) from None
    dtype, count, documents = _header(index, index_path)
    lengths, offsets, starts = _columns(index, count, documents)
    found = Indexed(
        tokens=tokens[: len(tokens) // dtype.itemsize * dtype.itemsize].view(dtype),
        lengths=lengths,
        offsets=offsets,
        documents=starts,
    )
    if check:
        _check_columns(found, index_path)
    size = (int(offsets[-1]) + int(lengths[-1]) * dtype.itemsize) if count else 0
    if size != len(tokens):
        raise damaged(tokens_path, f"has {len(tokens):,} bytes where its index says {size:,}")
    return found


def _mapped(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file; nothing can be mapped of an empty one."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r")


def _header(index: NDArray[np.uint8], path: Path) -> tuple[np.dtype[Any], int, int]:
    """Type of the tokens, count of sequences, count of documents + 1."""
    if len(index) < HEADER.size:
        raise damaged(path, f"has {len(index)} bytes; its header alone takes {HEADER.size}")
    magic, version, code, count, documents = HEADER.unpack(index[: HEADER.size].tobytes())
    if magic != MAGIC:
        raise damaged(path, "does not begin as an index of Megatron does")
    if version != 1:
        raise damaged(path, f"is of version {version}; only 1 is known")
    if code not in _TYPES:
        raise damaged(path, f"names type {code}; 1 to 8 are known")
    needed = HEADER.size + 12 * count + 8 * documents
    if len(index) not in (needed, needed + count):  # with a mode for each sequence
        sizes = f"{count:,} sequences in {documents - 1:,} documents take {needed:,}"
        raise damaged(path, f"has {len(index):,} bytes where its {sizes}")
    return _TYPES[code], count, documents


def _columns(index: NDArray[np.uint8], count: int, documents: int) -> tuple[Any, Any, Any]:
    ends = HEADER.size + np.cumsum([0, 4 * count, 8 * count, 8 * documents])
    lengths, offsets, starts = (index[start:stop] for start, stop in pairwise(ends))
    return lengths.view("<i4"), offsets.view("<i8"), starts.view("<i8")


def _check_columns(found: Indexed, path: Path) -> None:
    """Sequences lie end to end, and documents divide them."""
    count, end = len(found), 0
    for first in range(0, count, _BLOCK):
        lengths = found.lengths[first : first + _BLOCK].astype(np.int64)
        if (lengths < 0).any():
            sequence = first + int(np.argmax(lengths < 0))
            raise damaged(path, f"gives sequence {sequence:,} a negative length")
        ends = end + np.cumsum(lengths) * found.tokens.itemsize
        wrong = found.offsets[first : first + _BLOCK] != ends - lengths * found.tokens.itemsize
        if wrong.any():
            sequence = first + int(np.argmax(wrong))
            raise damaged(path, f"sequence {sequence:,} does not begin where the last one ends")
        end = int(ends[-1])
    starts = found.documents
    if not len(starts) or starts[0] != 0 or starts[-1] != count or (np.diff(starts) < 0).any():
        raise damaged(path, "documents do not divide the sequences from the first to the last")
