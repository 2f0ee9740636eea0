"""Structures of thrift's compact protocol, in which parquet writes its footer and page headers.

Format: thrift's doc/specs/thrift-compact-protocol.md. Booleans, bytes, doubles and maps are passed
over, for nothing that is read here has them.
"""

from __future__ import annotations

from typing import TypeAlias

Value: TypeAlias = "int | bytes | list[Value] | Fields"
Fields: TypeAlias = "dict[int, Value]"  # by number

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
_LONGEST_VARINT = 10
_DEEPEST = 24


def structure(data: bytes, at: int = 0, depth: int = 0) -> tuple[Fields, int]:
    """The fields of a structure and where it ends.

    Raises IndexError where the data ends before it does, ValueError where it is none.
    """
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    fields: Fields = {}
    number = 0
    while head := data[at]:
        at += 1
        number += head >> 4
        if not head >> 4:
            number, at = _integer(data, at)
        value, at = _value(data, at, head & 15, depth)
        if value is not None:
            fields[number] = value
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Value | None, int]:
    if kind in _INTEGERS:
        return _integer(data, at)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return data[at : at + length], _within(data, at + length)
    if kind == _STRUCT:
        return structure(data, at, depth + 1)
    if kind in (_LIST, _SET):
        return _list(data, at, depth + 1)
    if kind in (_TRUE, _FALSE):
        return None, at
    if kind in (_BYTE, _DOUBLE):
        return None, _within(data, at + (1 if kind == _BYTE else 8))
    raise ValueError(f"no field of type {kind} belongs here")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Value], int]:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    head = data[at]
    at += 1
    count, kind = head >> 4, head & 15
    if count == 15:
        count, at = _varint(data, at)
    items: list[Value] = []
    for _ in range(count):
        if kind in (_TRUE, _FALSE):
            at = _within(data, at + 1)
            continue
        item, at = _value(data, at, kind, depth)
        if item is not None:
            items.append(item)
    return items, at


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError("ends within a value")
    return at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        byte = data[at + shift]
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("an integer that never ends")
