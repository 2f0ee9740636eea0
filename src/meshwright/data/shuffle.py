"""Orders that a seed decides, the same on every machine and with every version of NumPy.

The numbers are the raw stream of Philox-4x64-10 (Salmon et al. 2011), which NumPy keeps as it is.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def shuffled(count: int, *, seed: int, purpose: str, number: int = 0) -> NDArray[np.int64]:
    """The numbers below `count` in an order of its own for each seed, purpose and number.

    Takes 16 bytes of memory for each, and as much again while it sorts.
    """
    stream = (zlib.crc32(purpose.encode()) << 32) + number
    key = np.array([seed % 2**64, stream], dtype=np.uint64)
    keys = np.random.Philox(key=key).random_raw(count)
    return np.argsort(keys, kind="stable")
