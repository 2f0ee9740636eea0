"""A rank's beats: its step, its phase and the collective it waits in, in a small file.

A file, and not torch's store: the store lives in a rank, and would stop with it. Beats are written
in place into a file of fixed size, so that they go on when the disk is full.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from meshwright.base.noun import dataclass
from meshwright.train.watch.stacks import waiting_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "MESHWRIGHT_BEATS"  # the folder that a supervised rank beats in
STARTING, STEP = "starting", "step"
_SIZE_BYTES = 4096
_INTERVAL_S = 0.5
_RARELY_S = 0.1  # between beats of steps that are shorter
_QUIET_S = 2.0  # a phase younger than this needs no stack
_KEPT = 64  # durations of steps that the median is of


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What one rank wrote last; `count` rises with every beat, `lasted_s` is the phase's age."""

    rank: int
    pid: int
    host: str = ""
    count: int = 0
    step: int = -1
    phase: str = STARTING
    lasted_s: float = 0.0
    median_s: float = 0.0  # of the last steps, 0 before there are any
    waiting_in: str = ""  # collective and the line that called it


class Heart:
    """Writes this rank's beats; a heart without a folder beats for nobody."""

    def __init__(self, folder: Path | None, *, rank: int) -> None:
        self._rank = rank
        self._step = -1
        self._phase = STARTING
        self._entered_s = time.monotonic()
        self._stepped_s: float | None = None
        self._durations: deque[float] = deque(maxlen=_KEPT)
        self._count = 0
        self._file = None if folder is None else _opened(folder / f"rank-{rank}")
        self._ended = threading.Event()
        self._worker = threading.get_ident()
        self._written_s = 0.0
        self._turn = threading.Lock()
        if self._file is not None:
            self._write()
            threading.Thread(target=self._beat, name="heart", daemon=True).start()

    @classmethod
    def here(cls, environment: Mapping[str, str] | None = None) -> Heart:
        """The heart of this rank, by its environment."""
        known = os.environ if environment is None else environment
        folder = known.get(VARIABLE)
        return cls(Path(folder) if folder else None, rank=int(known.get("RANK", "0")))

    def step(self, number: int) -> None:
        """Step `number` begins; the time since the last one began counts as that one's."""
        now_s = time.monotonic()
        if self._stepped_s is not None:
            self._durations.append(now_s - self._stepped_s)
        self._stepped_s = now_s
        self._step = number
        self._enter(STEP)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Something that may take longer than a step: "saving", "loading", "evaluating"."""
        before, self._stepped_s = self._phase, None
        self._enter(name)
        try:
            yield
        finally:
            self._enter(before)

    def stop(self) -> None:
        """Beats no more; for a process that lives on."""
        self._ended.set()

    def _enter(self, phase: str) -> None:
        changed = phase != self._phase
        self._phase, self._entered_s = phase, time.monotonic()
        if changed or self._entered_s - self._written_s > _RARELY_S:
            self._write()

    def _beat(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        with self._turn, contextlib.suppress(OSError):  # a rank outlives its file system
            self._count += 1
            self._written_s = time.monotonic()
            text = msgspec.json.encode(self._now()).ljust(_SIZE_BYTES - 1) + b"\n"
            os.pwrite(self._file, text, 0)

    def _now(self) -> Beat:
        lasted_s = time.monotonic() - self._entered_s
        return Beat(
            rank=self._rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            count=self._count,
            step=self._step,
            phase=self._phase,
            lasted_s=round(lasted_s, 3),
            median_s=statistics.median(self._durations) if self._durations else 0.0,
            waiting_in=waiting_in(self._worker) if lasted_s > _QUIET_S else "",
        )


def _opened(path: Path) -> int | None:
    """The file, made; None where it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None


def beats_in(folder: Path) -> dict[int, Beat]:
    """The last beat of every rank that beats in a folder; one that is half written is left out."""
    found: dict[int, Beat] = {}
    for path in folder.glob("rank-*"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            beat = msgspec.json.decode(path.read_bytes(), type=Beat)
            found[beat.rank] = beat
    return found
