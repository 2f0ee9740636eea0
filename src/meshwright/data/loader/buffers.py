"""Memory for the arrays of steps, taken again once nobody holds what was in it.

A step needs the same few megabytes as the one before. Fresh memory of that size costs a page fault
for every 4 KiB, which is most of what it takes to make a batch; memory that comes back costs none.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

MOST = 64  # buffers that are remembered


class Buffers:
    """Hands out arrays of any content.

    Every array is a view of a buffer and keeps it alive, as does any view or tensor of that array:
    a buffer to which only this object refers is free.
    """

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.uint8]] = []

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array to be filled."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._free(size).view(dtype).reshape(shape)

    def _free(self, size: int) -> NDArray[np.uint8]:
        buffers = self._buffers
        for place in range(len(buffers)):
            if len(buffers[place]) == size and sys.getrefcount(buffers[place]) == _ALONE:
                buffers.append(buffers.pop(place))
                return buffers[-1]
        buffers.append(np.empty(size, dtype=np.uint8))
        if len(buffers) > MOST:
            del buffers[0]
        return buffers[-1]


def _references_alone() -> int:
    """What `getrefcount` counts of an object in a list to which nothing else refers."""
    listed = [np.empty(0, dtype=np.uint8)]
    return sys.getrefcount(listed[0])


_ALONE = _references_alone()
