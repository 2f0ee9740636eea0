"""What a run came to: summary.json, written by the first rank when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.train.telling.record import Record

SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The end of one start of a run; `ended` is "done" or "stopped".

    Speeds are those of this start's steps but the first, which pays for what is done once;
    `first_step_s` is from the command to the end of the first step. `step` counts all steps of the
    run, `steps_here` those of this start.
    """

    ended: str
    step: int
    steps: int
    steps_here: int
    resumed_from: int
    loss: float | None
    first_loss: float | None
    evaluation_loss: float | None
    tokens: int
    consumed_samples: int
    epochs: tuple[float, ...]
    world_size: int
    device: str
    seconds: float
    first_step_s: float | None
    step_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    data_wait_share: float | None
    memory_bytes: float
    predicted_step_s: float | None
    predicted_bytes: float | None
    updates_left_out: int
    checkpoints: tuple[int, ...]
    checkpoint_stall_s: float


def write_summary(summary: Summary, folder: Path) -> None:
    """Writes it, whole or not at all."""
    partial = folder / f"{SUMMARY}.tmp"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1))
    partial.replace(folder / SUMMARY)


def read_summary(folder: Path) -> Summary | None:
    """The summary in the folder of a run, None where there is none yet."""
    path = folder / SUMMARY
    return msgspec.json.decode(path.read_bytes(), type=Summary) if path.exists() else None


class Course:
    """Adds steps up as they come; a few numbers, however long the run is."""

    def __init__(self) -> None:
        self.steps = self.timed = self.tokens = self.left_out = 0
        self.timed_s = self.waited_s = self.memory_bytes = 0.0
        self.first: Record | None = None
        self.last: Record | None = None
        self.evaluation_loss: float | None = None

    def add(self, record: Record) -> None:
        """One more step."""
        self.first = self.first or record
        self.last = record
        self.steps += 1
        self.tokens += record.tokens
        self.left_out += not record.updated
        self.memory_bytes = max(self.memory_bytes, record.memory_bytes)
        if record.evaluation_loss is not None:
            self.evaluation_loss = record.evaluation_loss
        if self.steps > 1:
            self.timed += 1
            self.timed_s += record.step_s
            self.waited_s += record.data_wait_s

    @property
    def step_s(self) -> float | None:
        """Mean of the timed steps."""
        return self.timed_s / self.timed if self.timed else None

    @property
    def tokens_per_s(self) -> float | None:
        """Over the timed steps."""
        if not self.timed or self.first is None:
            return None
        return (self.tokens - self.first.tokens) / self.timed_s

    @property
    def wait_share(self) -> float | None:
        """Part of the timed steps that was waited for data."""
        return self.waited_s / self.timed_s if self.timed_s else None
