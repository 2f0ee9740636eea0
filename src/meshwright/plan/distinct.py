"""Distinct rows of a few integer columns, found without sorting where the values are small.

A cost that depends on three or four plan fields has a few hundred distinct values in a million
plans: it is computed once for each and handed out by index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

TABLE_ROOM = 1 << 20  # codes up to this are found through a table, above it by sorting


def distinct(*columns: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that differ, and for every row the place of its equal among them.

    Columns of non-negative integers or booleans, broadcast against each other to one shape. Returns
    `first` (positions of one representative of each distinct row, counted over that shape) and
    `inverse`, of that shape, with `pick(column, first, shape)[inverse] == column` for every column.
    """
    codes = _codes([np.asarray(c) for c in columns])
    if codes.size == 0:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty
    if int(codes.max()) >= TABLE_ROOM:
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        return first, inverse.reshape(codes.shape)
    place = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    place[codes.ravel()] = np.arange(codes.size)
    present = np.zeros(place.size, dtype=bool)
    present[codes] = True
    values = np.flatnonzero(present)
    first = place[values]
    place[values] = np.arange(values.size)
    return first, place[codes]


def pick(column: Any, positions: NDArray[np.int64], shape: tuple[int, ...]) -> Any:
    """Values of a column at positions of the shape it broadcasts to, without broadcasting it."""
    column = np.asarray(column)
    if column.ndim == 0:
        return column
    places = np.unravel_index(positions, shape)[len(shape) - column.ndim :]
    ends = zip(places, column.shape, strict=True)
    return column[tuple(np.minimum(place, size - 1) for place, size in ends)]


def _codes(columns: list[NDArray[Any]]) -> NDArray[np.int64]:
    """One integer a row, equal where and only where the rows are equal."""
    size = np.broadcast_shapes(*(c.shape for c in columns))
    code = np.zeros(size or (1,), dtype=np.int64)
    room = 1
    for column in columns:
        if column.ndim == 0:
            continue
        digit = column.astype(np.int64)
        span = int(digit.max()) + 1 if digit.size else 1
        if room * span >= TABLE_ROOM:
            code, digit = _packed(code), _packed(digit)
            room, span = int(code.max()) + 1, int(digit.max()) + 1
        code = code * span + digit
        room *= span
    return code


def _packed(code: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same partition with codes 0, 1, 2, ..."""
    if code.size == 0:
        return code
    if int(code.max()) >= TABLE_ROOM:
        return np.unique(code, return_inverse=True)[1].astype(np.int64)
    present = np.zeros(int(code.max()) + 1, dtype=np.int64)
    present[code] = 1
    return (np.cumsum(present) - 1)[code]


def narrow(column: Any) -> Any:
    """A column without its repetitions: an axis along which nothing changes gets length 1.

    The last axis is left as it is. Columns of a block of plans stay small so, and what depends on
    them is computed once instead of once for each option that it does not depend on.
    """
    if np.ndim(column) == 0:
        return column
    column = np.asarray(column)
    for axis in range(column.ndim - 1):
        first = column.take([0], axis=axis)
        if column.shape[axis] > 1 and (column == first).all():
            column = first
    return column
