"""One piece to a row, the rest of it padding: what training without packing costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.pack.pieces import pieces_of
from meshwright.data.pack.rows import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def padded(lengths: NDArray[np.integer], seq_len: int) -> Rows:
    """A row for each document, several for one that is longer than a row."""
    document, offset, length = pieces_of(lengths, seq_len)
    return Rows(
        seq_len=seq_len,
        bounds=np.arange(len(length) + 1, dtype=np.int64),
        document=document,
        offset=offset,
        length=length,
    )
