"""Columns that grow by chunks of numpy arrays, and are joined and sorted once at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

TYPES: Mapping[str, Any] = {
    "start_ns": np.int64,
    "end_ns": np.int64,
    "at_ns": np.int64,
    "name": np.int32,
    "kind": np.int8,
    "device": np.int32,
    "stream": np.int32,
    "thread": np.int32,
    "correlation": np.int64,
    "external": np.int64,
    "message": np.int32,
    "seq": np.int64,
    "shape": np.int32,
    "bytes": np.int64,
    "allocated_bytes": np.int64,
    "reserved_bytes": np.int64,
}
_LOOSE = 32  # chunks that are kept as they came
_TIMES = ("start_ns", "end_ns", "at_ns")


class Chunks:
    """Rows of one table."""

    def __init__(self, *columns: str) -> None:
        self._chunks: dict[str, list[NDArray[Any]]] = {name: [] for name in columns}
        self._start = columns[0]
        self._loose = 0
        self.outside = 0

    def add(self, **columns: NDArray[Any]) -> None:
        """Adds rows; every column is given."""
        for name, chunks in self._chunks.items():
            chunks.append(columns[name].astype(TYPES[name], copy=False))
        self._loose += 1
        if self._loose == _LOOSE:
            self._gather()

    def _gather(self) -> None:
        """Joins the latest chunks: small ones leave holes in memory that large ones cannot fill."""
        for chunks in self._chunks.values():
            chunks[-self._loose :] = [np.concatenate(chunks[-self._loose :])]
        self._loose = 0

    def reach(self) -> tuple[int, int] | None:
        """The first and the last time at which a row starts."""
        chunks = [c for c in self._chunks[self._start] if len(c)]
        if not chunks:
            return None
        return min(int(c.min()) for c in chunks), max(int(c.max()) for c in chunks)

    def starts(self) -> NDArray[np.int64]:
        """The times at which rows start, as they came."""
        return self._joined(self._start)

    def sorted(self, *, origin_ns: int, earliest_ns: int, latest_ns: int) -> dict[str, Any]:
        """All rows that start within bounds, in order, times from the origin. Empties the chunks.

        Rows outside are counted in `outside`.
        """
        times = self._joined(self._start)
        ends = self._joined("end_ns") if "end_ns" in self._chunks else times
        order = np.lexsort((-ends, times))
        if len(order) and not earliest_ns <= times[order[0]] <= times[order[-1]] <= latest_ns:
            kept = order[(times[order] >= earliest_ns) & (times[order] <= latest_ns)]
            self.outside, order = len(order) - len(kept), kept
        return {name: self._taken(name, order, origin_ns) for name in self._chunks}

    def _taken(self, name: str, order: NDArray[Any], origin_ns: int) -> NDArray[Any]:
        column = self._joined(name)[order]
        self._chunks[name] = []
        if name in _TIMES:
            column -= origin_ns
        taken: NDArray[Any] = column
        return taken

    def _joined(self, name: str) -> NDArray[Any]:
        chunks = self._chunks[name]
        if len(chunks) != 1:
            chunks[:] = [np.concatenate(chunks) if chunks else np.empty(0, dtype=TYPES[name])]
        return chunks[0]
