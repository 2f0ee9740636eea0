"""Logs of ranks: where they are, their last lines, and what was added to one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES = 64 * 1024
_OVERTAKEN = pattern(r"[^\n]*\r(?!\n)")  # a progress line that was written over


def log_of(folder: Path, attempt: int, rank: int) -> Path:
    """The log of one rank in one attempt."""
    return folder / f"attempt-{attempt}" / f"rank-{rank}.log"


def last_lines(path: Path, count: int) -> tuple[str, ...]:
    """The last lines of a file that may not exist or not be text; blank ones are left out."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    lines = [line.rstrip() for line in _OVERTAKEN.sub("", text).split("\n")]
    return tuple([line for line in lines if line][-count:])


class Tail:
    """What was added to a file since it was read last."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._read_bytes = 0

    def follow(self, path: Path, *, skip_bytes: int) -> None:
        """Another file, without what an earlier run wrote into it."""
        self._path = path
        self._read_bytes = skip_bytes

    def read(self) -> str:
        """The new text, whole lines or not."""
        if self._path is None:
            return ""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
        except OSError:
            return ""
        self._read_bytes += len(data)
        return data.decode("utf-8", "replace")
