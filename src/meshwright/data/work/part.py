"""Parts of one build: the same command started several times, on machines that share the folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_PARTS = 10_000
_TEXT = pattern(r"(\d{1,6})/(\d{1,6})\Z")


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` (from 0) of `count`: it makes the units whose number leaves that remainder."""

    number: int
    count: int

    def has(self, unit: int) -> bool:
        """Whether a unit is this part's."""
        return unit % self.count == self.number

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True, slots=True)
class Run:
    """One start of all parts together, "" where nothing names it; `attempt` counts requeues."""

    name: str = ""
    attempt: int = 0


ALONE = Part(0, 1)
UNKNOWN = Run()
RUN = "MESHWRIGHT_RUN"  # names the run where no Slurm array does


def parse_part(text: str) -> Part:
    """The part written as "3/8": the fourth of eight; MeshwrightError otherwise."""
    match = _TEXT.match(text.strip())
    if match is not None:
        number, count = map(int, match.groups())
        if number < count <= MOST_PARTS:
            return Part(number, count)
    raise MeshwrightError(
        f"{text!r} is no part of a build", hint="write it as 0/8, 1/8, ... 7/8: eight parts"
    )


def part_of_array(environment: Mapping[str, str] = os.environ) -> Part:
    """The part that Slurm gives this task of an array; MeshwrightError outside of one."""
    try:
        task = int(environment["SLURM_ARRAY_TASK_ID"])
        first = int(environment.get("SLURM_ARRAY_TASK_MIN", "0"))
        step = int(environment.get("SLURM_ARRAY_TASK_STEP", "1"))
        count = int(environment["SLURM_ARRAY_TASK_COUNT"])
    except (KeyError, ValueError):
        raise MeshwrightError(
            "this is no task of a Slurm array", hint="say which part this is: --part 0/8"
        ) from None
    return parse_part(f"{(task - first) // max(1, step)}/{count}")


def run_of_parts(environment: Mapping[str, str] = os.environ) -> Run:
    """The run that this part belongs to: MESHWRIGHT_RUN, or the job of a Slurm array."""
    name = environment.get(RUN) or environment.get("SLURM_ARRAY_JOB_ID", "")
    restarts = environment.get("SLURM_RESTART_COUNT", "")
    return Run(name, int(restarts) if restarts.isdecimal() else 0)
