"""metrics.jsonl: one JSON object a step, and no step twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from meshwright.train.telling.record import Record

METRICS = "metrics.jsonl"


class Metrics:
    """Appends steps to the file; every line is there when `add` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def add(self, record: Record) -> None:
        """One line."""
        fields = {name: value for name, value in _items(record) if value is not None}
        try:
            self._file.write(msgspec.json.encode(fields) + b"\n")
        except OSError as error:
            raise MeshwrightError(
                f"cannot write {METRICS}: {error.strerror or error}",
                hint="free some space, then go on with --resume",
            ) from None

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def cut_after(path: Path, *, step: int) -> None:
    """Leaves only whole lines of steps up to `step`: what came later is done again."""
    if not path.exists():
        return
    partial = path.with_suffix(".tmp")
    with partial.open("wb") as file:
        for line, fields in _lines(path):
            if fields["step"] <= step:
                file.write(line)
    partial.replace(path)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The steps in a file, whole lines alone; empty where there is none."""
    return [fields for _, fields in _lines(path)] if path.exists() else []


def _items(record: Record) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(record, name)) for name in record.__slots__)


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Lines that are JSON objects with a step; a torn last one is none."""
    with path.open("rb") as file:
        for line in file:
            try:
                fields = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(fields, dict) and isinstance(fields.get("step"), int):
                yield line if line.endswith(b"\n") else line + b"\n", fields
