"""Documents end to end, cut into rows: no padding, and as many cuts as there are rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.documents import bounds_of
from meshwright.data.pack.rows import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def concatenate(lengths: NDArray[np.integer], seq_len: int) -> Rows:
    """Row r holds the tokens r * seq_len and following of all documents; only the last is short."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.arange(0, total, seq_len, dtype=np.int64)
    starts = np.unique(np.concatenate([(ends - lengths)[lengths > 0], cuts]))
    document = np.searchsorted(ends, starts, side="right")
    return Rows(
        seq_len=seq_len,
        bounds=np.append(np.searchsorted(starts, cuts), len(starts)).astype(np.int64),
        document=document,
        offset=starts - (ends - lengths)[document],
        length=np.diff(np.append(starts, total)),
    )


def count_cut(lengths: NDArray[np.integer], seq_len: int) -> int:
    """Documents that a border between rows runs through."""
    bounds = bounds_of(lengths)
    first, last = bounds[:-1] // seq_len, (bounds[1:] - 1) // seq_len
    return int(np.count_nonzero(last > first))
