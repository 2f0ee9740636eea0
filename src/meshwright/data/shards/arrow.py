"""Arrow arrays from NumPy's and from strings, without pyarrow's way over pandas.

`pyarrow.array` imports pandas wherever it is installed, which takes longer than the tables that are
written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.documents import bounds_of
from meshwright.data.needs import need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def numbers(values: NDArray[Any], *, missing: NDArray[np.bool_] | None = None) -> Any:
    """An array of numbers, null where `missing`."""
    arrow = need("pyarrow", "writing parquet")
    kind = arrow.from_numpy_dtype(values.dtype)
    valid = None
    if missing is not None:
        valid = arrow.py_buffer(np.packbits(~missing, bitorder="little"))
    data = arrow.py_buffer(np.ascontiguousarray(values))
    return arrow.Array.from_buffers(kind, len(values), [valid, data])


def strings(values: Sequence[str]) -> Any:
    """An array of strings."""
    arrow = need("pyarrow", "writing parquet")
    encoded = [value.encode() for value in values]
    bounds = bounds_of(np.array([len(value) for value in encoded], dtype=np.int64))
    if bounds[-1] > np.iinfo(np.int32).max:
        raise OverflowError("strings of more than 2 GiB together")
    buffers = [None, arrow.py_buffer(bounds.astype(np.int32)), arrow.py_buffer(b"".join(encoded))]
    return arrow.Array.from_buffers(arrow.string(), len(encoded), buffers)
