"""Files whose digest is taken while they are written."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.needs import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """A whole file: its size, and its 128-bit xxh3 in hexadecimal."""

    bytes: int
    xxh3_128: str


class HashedFile:
    """A binary file that is written from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.bytes = 0
        self._hash = need("xxhash", "hashing shards").xxh3_128()

    def write(self, part: Any) -> int:
        """Appends anything with a buffer; returns its bytes."""
        view = memoryview(part).cast("B")
        self.file.write(view)
        self._hash.update(view)
        self.bytes += len(view)
        return len(view)

    @property
    def written(self) -> Written:
        """What has been written so far."""
        return Written(self.bytes, self._hash.hexdigest())


@contextlib.contextmanager
def creating(path: Path) -> Iterator[HashedFile]:
    """A new file, which takes its place, flushed to the disk, when the block ends well."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield HashedFile(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_column(path: Path, values: NDArray[Any]) -> Written:
    """One array as .npy."""
    with creating(path) as file:
        np.save(cast("Any", file), np.ascontiguousarray(values), allow_pickle=False)
    return file.written


def digest_of(path: Path) -> Written:
    """Reads a whole file; OSError when that fails."""
    digest, total = need("xxhash", "hashing shards").xxh3_128(), 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
            total += len(part)
    return Written(total, digest.hexdigest())


def settle(path: Path) -> None:
    """Makes what was written to a file last."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
