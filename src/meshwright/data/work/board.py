"""What the parts of a build know of each other: a small file of each, rewritten as it lives.

A part that fails says so in its file, and the others stop; one that is silent for too long is taken
for dead. Clocks of different machines are never compared, only whether a file still changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from meshwright.base.errors import MeshwrightError
from meshwright.data.work.part import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.data.work.part import Part, Run

BEAT_S = 5.0
SILENCE_S = 120.0  # of a part that has begun, before it is taken for dead


class Board:
    """The files of all parts; this one's is kept alive while the board is entered."""

    def __init__(
        self, folder: Path, part: Part, key: str, *, patience_s: float, run: Run = UNKNOWN
    ) -> None:
        """`key` stands for the settings and inputs; `patience_s` is for parts not begun yet.

        What lies there at the start is taken for an earlier run's, unless `run` tells otherwise.
        """
        self.folder = folder
        self.part = part
        self.key = key
        self.patience_s = patience_s
        self.run = run
        self._begun = time.monotonic()
        self._seen: dict[int, tuple[str, float]] = {}  # of each part: its file, since when
        self._old: dict[int, str] = {}  # files that earlier runs left
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        others = (number for number in range(self.part.count) if number != self.part.number)
        self._old = {number: self._read(number) for number in others}
        self._write({"beat": 0})
        self._beat.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stop.set()
        self._beat.join()
        state = {"error": _first_line(error)} if error is not None else {"done": True}
        with contextlib.suppress(OSError):
            self._write(state)

    def check(self, number: int, what: str) -> None:
        """MeshwrightError when the part `number`, which owes `what`, failed or is dead."""
        now, text = time.monotonic(), self._read(number)
        if text and text == self._old.get(number) and not self._is_of_this_run(text):
            text = ""
        before, since = self._seen.get(number, ("", self._begun))
        if text != before:
            self._seen[number] = before, since = text, now
        state = _parsed(text)
        self._refuse(number, state)
        silence, allowed = now - since, SILENCE_S if text else self.patience_s
        if silence > min(allowed, self.patience_s):
            raise MeshwrightError(
                f"part {number} of {self.part.count} has given no sign of life for "
                f"{silence:.0f} s, and {what} is left to it",
                hint=f"start it again with --part {number}/{self.part.count}, then this one",
            )

    def _is_of_this_run(self, text: str) -> bool:
        state = _parsed(text)
        attempt = state.get("attempt")
        is_same = bool(self.run.name) and state.get("run") == self.run.name
        return is_same and isinstance(attempt, int) and attempt >= self.run.attempt

    def _refuse(self, number: int, state: dict[str, Any]) -> None:
        """MeshwrightError for a part that failed, or that makes something else."""
        if state.get("error"):
            raise MeshwrightError(
                f"part {number} of {self.part.count} failed: {state['error']}",
                hint="see what it said, then start it and this one again",
            )
        if state and state.get("key") != self.key:
            raise MeshwrightError(
                f"part {number} of {self.part.count} has other settings or sees other input",
                hint="give every part the same command, but for --part, the same files, and the "
                "same versions of what is installed",
            )

    def _live(self) -> None:
        """Rewrites this part's file until told to stop."""
        beat = 0
        while not self._stop.wait(BEAT_S):
            beat += 1
            with contextlib.suppress(OSError):
                self._write({"beat": beat})

    def _write(self, state: dict[str, Any]) -> None:
        who: dict[str, Any] = {
            "key": self.key,
            "host": socket.gethostname(),
            "process": os.getpid(),
        }
        who |= {"run": self.run.name, "attempt": self.run.attempt, "begun": self._begun}
        path = self._path(self.part.number)
        part = path.with_suffix(".new")
        part.write_text(json.dumps({**who, **state}), encoding="utf-8")
        part.replace(path)

    def _read(self, number: int) -> str:
        with contextlib.suppress(OSError, ValueError):
            return self._path(number).read_text(encoding="utf-8")
        return ""

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.json"


def _parsed(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    return {}


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:500] if lines else type(error).__name__
