"""The key of exact duplicates: a 128-bit hash of the text.

Two documents are equal when the UTF-8 that cleaning left of them is the same, byte for byte: case,
spaces and line ends count as far as cleaning keeps them. What the input says beside the text (an
id, its source) does not count.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from meshwright.data.needs import need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Documents


def exact_keys(documents: Documents) -> NDArray[np.uint64]:
    """XXH3 (128 bits, seed 0) of each document's text: uint64 [documents, 2], high half first."""
    digest = need("xxhash", "exact dedup").xxh3_128_digest
    text, bounds = np.ascontiguousarray(documents.text).data, documents.bounds.tolist()
    digests = [digest(text[a:b]) for a, b in pairwise(bounds)]
    return np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 2).astype(np.uint64)
