"""A column of a unit whose length is not known before its end, written as it comes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike, NDArray

    from meshwright.data.work.store import Draft


class Growing:
    """A one-dimensional .npy file of plain numbers that is appended to."""

    def __init__(self, file: Any, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.count = 0
        self._file = file
        self._write_header()
        self._data_at = file.tell()

    def append(self, values: NDArray[Any]) -> None:
        """Writes values behind those already there."""
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.count += len(values)

    def close(self) -> None:
        """Puts the final length into the header."""
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._data_at:
            raise RuntimeError("the header of a .npy file changed its length")

    def _write_header(self) -> None:
        """A header of the same length for any count: the format leaves room for its digits."""
        described = {
            "descr": self.dtype.str,
            "fortran_order": False,
            "shape": (self.count,),
        }
        write: Any = npy.write_array_header_1_0  # typed in some versions of NumPy alone
        write(self._file, described)


@contextlib.contextmanager
def growing_column(draft: Draft, name: str, dtype: DTypeLike) -> Iterator[Growing]:
    """A column of a unit to append to; complete when the block ends."""
    with draft.opened(f"{name}.npy") as file:
        column = Growing(file, dtype)
        yield column
        column.close()
