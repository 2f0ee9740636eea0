"""Tensors that are not there yet: made of parts of files, and read a block at a time.

Files and modules often hold the same numbers in another arrangement: one tensor an expert or all
experts in one, gate and up apart or together. A `Lazy` says how one arises from the other, and
`read_into` fetches just the block that is wanted, straight into place.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Protocol

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from meshwright.train.checkpoint.index import Entry

Start = tuple[int, ...]


class Lazy(Protocol):
    """Something with a shape whose blocks can be read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""

    @property
    def dtype(self) -> str:
        """As it is stored, without "torch."."""

    @property
    def places(self) -> tuple[str, ...]:
        """Files that it is read from."""

    def read_into(self, target: Tensor, start: Start) -> None:
        """Fills `target` with the block of its size that begins at `start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor of one file; `open` gives the file (`safetensors.safe_open`)."""

    open: Callable[[str], Any]
    file: str
    key: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def places(self) -> tuple[str, ...]:
        """The file."""
        return (self.file,)

    def read_into(self, target: Tensor, start: Start) -> None:
        """A slice of the file."""
        file = self.open(self.file)
        target.copy_(
            file.get_slice(self.key)[_slices(start, target.shape)]
            if start
            else file.get_tensor(self.key)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieced:
    """A tensor of a checkpoint, in pieces that different ranks wrote."""

    open: Callable[[str], Any]
    entry: Entry
    key_of: Callable[[Start], str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        return self.entry.shape

    @property
    def dtype(self) -> str:
        """As it is stored."""
        return self.entry.dtype

    @property
    def places(self) -> tuple[str, ...]:
        """Files of the pieces."""
        return tuple(dict.fromkeys(piece.file for piece in self.entry.pieces))

    def read_into(self, target: Tensor, start: Start) -> None:
        """What each piece has of the block."""
        for piece in self.entry.pieces:
            stored = Stored(
                open=self.open,
                file=piece.file,
                key=self.key_of(piece.start),
                shape=piece.size,
                dtype=self.entry.dtype,
            )
            _read_overlap(stored, piece.start, target, start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacked:
    """Tensors of one shape as slices of a new dim."""

    parts: tuple[Lazy, ...]
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        """That of a part with one dim more."""
        first = self.parts[0].shape
        return (*first[: self.dim], len(self.parts), *first[self.dim :])

    @property
    def dtype(self) -> str:
        """That of the first part."""
        return self.parts[0].dtype

    @property
    def places(self) -> tuple[str, ...]:
        """Files of all parts."""
        return _places(self.parts)

    def read_into(self, target: Tensor, start: Start) -> None:
        """Slice after slice."""
        rest = (*start[: self.dim], *start[self.dim + 1 :])
        for i in range(target.shape[self.dim]):
            self.parts[start[self.dim] + i].read_into(target.select(self.dim, i), rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Tensors end to end along a dim."""

    parts: tuple[Lazy, ...]
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Their sum along the dim."""
        first = self.parts[0].shape
        total = sum(part.shape[self.dim] for part in self.parts)
        return (*first[: self.dim], total, *first[self.dim + 1 :])

    @property
    def dtype(self) -> str:
        """That of the first part."""
        return self.parts[0].dtype

    @property
    def places(self) -> tuple[str, ...]:
        """Files of all parts."""
        return _places(self.parts)

    def read_into(self, target: Tensor, start: Start) -> None:
        """What each part has of the block."""
        ends = itertools.accumulate(part.shape[self.dim] for part in self.parts)
        for part, end in zip(self.parts, ends, strict=True):
            origin = [0] * len(part.shape)
            origin[self.dim] = end - part.shape[self.dim]
            _read_overlap(part, tuple(origin), target, start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """A stretch of a tensor along a dim."""

    whole: Lazy
    dim: int
    first: int
    length: int

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the whole, shorter."""
        outer = self.whole.shape
        return (*outer[: self.dim], self.length, *outer[self.dim + 1 :])

    @property
    def dtype(self) -> str:
        """That of the whole."""
        return self.whole.dtype

    @property
    def places(self) -> tuple[str, ...]:
        """Files of the whole."""
        return self.whole.places

    def read_into(self, target: Tensor, start: Start) -> None:
        """The block of the whole."""
        moved = (*start[: self.dim], start[self.dim] + self.first, *start[self.dim + 1 :])
        self.whole.read_into(target, moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One slice of a tensor along a dim, which is gone."""

    whole: Lazy
    dim: int
    index: int

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the whole without the dim."""
        outer = self.whole.shape
        return (*outer[: self.dim], *outer[self.dim + 1 :])

    @property
    def dtype(self) -> str:
        """That of the whole."""
        return self.whole.dtype

    @property
    def places(self) -> tuple[str, ...]:
        """Files of the whole."""
        return self.whole.places

    def read_into(self, target: Tensor, start: Start) -> None:
        """The block of the whole."""
        outer = (*start[: self.dim], self.index, *start[self.dim :])
        self.whole.read_into(target.unsqueeze(self.dim), outer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transposed:
    """A tensor with two dims exchanged."""

    whole: Lazy
    dims: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Exchanged as well."""
        return _exchanged(self.whole.shape, self.dims)

    @property
    def dtype(self) -> str:
        """That of the whole."""
        return self.whole.dtype

    @property
    def places(self) -> tuple[str, ...]:
        """Files of the whole."""
        return self.whole.places

    def read_into(self, target: Tensor, start: Start) -> None:
        """The block of the whole, into the target seen the other way."""
        self.whole.read_into(target.transpose(*self.dims), _exchanged(start, self.dims))


def _read_overlap(part: Lazy, origin: Start, target: Tensor, start: Start) -> None:
    """Fills of `target`, which begins at `start` of a whole, what `part` at `origin` holds."""
    bounds = list(_overlaps(part.shape, origin, tuple(target.shape), start))
    if all(end > first for first, end in bounds):
        within = tuple(slice(a - s, b - s) for (a, b), s in zip(bounds, start, strict=True))
        first = tuple(a - o for (a, _), o in zip(bounds, origin, strict=True))
        part.read_into(target[within], first)


def _overlaps(size: Start, origin: Start, wanted: Start, start: Start) -> Iterator[tuple[int, int]]:
    """Along every dim, where two blocks overlap, in the whole tensor."""
    for n, o, m, s in zip(size, origin, wanted, start, strict=True):
        yield max(o, s), min(o + n, s + m)


def _slices(start: Start, size: Any) -> tuple[slice, ...]:
    return tuple(slice(o, o + n) for o, n in zip(start, size, strict=True))


def _places(parts: tuple[Lazy, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place for part in parts for place in part.places))


def _exchanged(values: Start, dims: tuple[int, int]) -> Start:
    swapped = list(values)
    swapped[dims[0]], swapped[dims[1]] = swapped[dims[1]], swapped[dims[0]]
    return tuple(swapped)
