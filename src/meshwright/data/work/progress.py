"""How far a build is: counted as units are finished."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    OnProgress = Callable[["Progress"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of one stage; bytes are of stored input, or of text where a stage reads that."""

    stage: str
    place: int  # of the stage among `stages`, from 1
    stages: int
    units: int
    units_done: int  # those found finished included
    bytes: int
    bytes_done: int
    documents: int  # by the units made in this run
    seconds: float  # since the stage began
    bytes_here: int  # made in this run

    @property
    def bytes_per_s(self) -> float:
        """Rate of this run; 0 when nothing is done yet."""
        return self.bytes_here / self.seconds if self.seconds > 0 else 0.0

    @property
    def documents_per_s(self) -> float:
        """Documents a second in this run."""
        return self.documents / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds to the end of this stage at the present rate; None when there is none yet."""
        if not self.bytes_here:
            return None
        return (self.bytes - self.bytes_done) / self.bytes_per_s


class Meter:
    """Counts the units of one stage and tells."""

    def __init__(self, stage: str, tell: OnProgress, *, place: tuple[int, int]) -> None:
        """`place` is (of this stage from 1, stages)."""
        self.stage = stage
        self.weights: Mapping[int, int] = {}
        self._tell = tell
        self._place = place
        self._started = time.monotonic()
        self._done = 0
        self._bytes = 0
        self._all_bytes = 0
        self._found: Sequence[int] = ()
        self._found_bytes = 0
        self._documents = 0
        self._cpu_s = 0.0

    def begin(self, weights: Mapping[int, int], found: Sequence[int]) -> None:
        """The units with the bytes behind each, and those that an earlier run finished."""
        self.weights, self._found = weights, found
        self._done = len(found)
        self._all_bytes = sum(weights.values())
        self._found_bytes = self._bytes = sum(weights[number] for number in found)
        self.tell()

    def done(self, number: int, record: Mapping[str, Any], *, cpu_s: float) -> None:
        """A unit that is now there, with what it says of itself."""
        self._done += 1
        self._bytes += self.weights[number]
        self._documents += documents_of(record)
        self._cpu_s += cpu_s
        self.tell()

    def facts(self) -> dict[str, Any]:
        """Units, those found among them, and seconds: on the clock and of all CPUs."""
        return {
            "units": len(self.weights),
            "found": len(self._found),
            "seconds": round(time.monotonic() - self._started, 3),
            "cpu_seconds": round(self._cpu_s, 3),
        }

    def tell(self) -> None:
        """Passes on the present state."""
        self._tell(
            Progress(
                stage=self.stage,
                place=self._place[0],
                stages=self._place[1],
                units=len(self.weights),
                units_done=self._done,
                bytes=self._all_bytes,
                bytes_done=self._bytes,
                documents=self._documents,
                seconds=time.monotonic() - self._started,
                bytes_here=self._bytes - self._found_bytes,
            )
        )


def documents_of(record: Mapping[str, Any]) -> int:
    """Documents that a unit's record counts, 0 when it does not say."""
    inputs = record.get("inputs")
    if isinstance(inputs, dict):
        return sum(int(found.get("read", 0)) for found in inputs.values())
    count = record.get("documents", 0)
    return count if isinstance(count, int) else 0
