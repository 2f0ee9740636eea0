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
    """The numbers below `count` in an order of its own for each seed, purpose and number."""
    return shuffle(np.arange(count), seed=seed, purpose=purpose, number=number)


def shuffle(
    items: NDArray[np.int64], *, seed: int, purpose: str, number: int = 0
) -> NDArray[np.int64]:
    """Numbers from 0 on, some perhaps several times, in an order that the seed decides.

    Each is put behind random bits and the whole is sorted, in 8 bytes of memory an item.
    """
    bits = int(items.max(initial=0)).bit_length()
    stream = (zlib.crc32(purpose.encode()) << 32) + number
    key = np.array([seed % 2**64, stream], dtype=np.uint64)
    keys = np.random.Philox(key=key).random_raw(len(items))
    keys >>= np.uint64(bits)
    keys <<= np.uint64(bits)
    keys |= items.view(np.uint64)
    keys.sort()
    keys &= np.uint64((1 << bits) - 1)
    return keys.view(np.int64)
