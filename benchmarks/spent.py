"""What a command costs, measured from outside; and the same sample of a corpus for everyone."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Spent(NamedTuple):
    """Seconds of CPU, the command's and of all it started, and on the clock; what it printed."""

    cpu_s: float
    wall_s: float
    printed: str


def run(command: list[str], **environment: str) -> Spent:
    """Runs a command to its end; RuntimeError with the last that it said when it fails."""
    before, start = _children_s(), time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    wall_s, cpu_s = time.perf_counter() - start, _children_s() - before
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        program = " ".join(word.rpartition("/")[2] for word in command[:2])
        raise RuntimeError(f"{program}: {said[0][-600:]}")
    return Spent(cpu_s, wall_s, done.stdout)


def sample(files: Iterable[Path], target: Path, *, mb: float) -> Path:
    """The first `mb` MB of the files in whole lines, as one file."""
    room = mb * 1e6
    with target.open("wb") as out:
        for path in files:
            with path.open("rb") as lines:
                for line in lines:
                    if room <= 0:
                        return target
                    out.write(line)
                    room -= len(line)
    return target


def _children_s() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
