"""Documents cut where they are longer than a row, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.documents import bounds_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.pack.rows import Column


def pieces_of(lengths: NDArray[np.integer], seq_len: int) -> tuple[Column, Column, Column]:
    """Document, offset in it and length of each piece, in the order of the documents.

    All pieces of a document are full ones but its last.
    """
    counts = -(-lengths.astype(np.int64) // seq_len)
    document = np.repeat(np.arange(len(lengths)), counts)
    offset = (np.arange(len(document)) - np.repeat(bounds_of(counts)[:-1], counts)) * seq_len
    return document, offset, np.minimum(lengths[document] - offset, seq_len)
