"""What happens to a run: told by its supervisor, who hears some of it from the agent."""

from __future__ import annotations

import contextlib
import os
from dataclasses import field
from typing import Any

import msgspec

from meshwright.base.noun import dataclass

STARTING = "starting"  # an attempt's ranks are being started
RANKS = "ranks"  # they run; `pids` by rank, `left` more attempts
FAILED = "failed"  # a rank ended as it should not; `rank`, `code`, `lines` of its log
HANG = "hang"  # ranks stand still; `lines` says where each of them is
AGENT_LOST = "agent lost"  # torchrun's agent ended or showed no life; `code`
RESTARTING = "restarting"  # another attempt; `text` says how many are left
STOPPING = "stopping"  # somebody asked to stop; `text` says how long the ranks have
LINE = "line"  # rank 0 wrote something; `text` as it was written
ENDED = "ended"  # `code`, and the signal `sign` that asked for it, if one did


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened in attempt `attempt`, counted from 0."""

    kind: str
    attempt: int = 0
    text: str = ""
    rank: int = -1
    code: int = 0
    left: int = 0
    sign: int = 0
    lines: tuple[str, ...] = ()
    pids: dict[int, int] = field(default_factory=dict)


def write(descriptor: int, event: Event) -> None:
    """One line to the supervisor; nothing where it has gone."""
    with contextlib.suppress(OSError):
        os.write(descriptor, msgspec.json.encode(event) + b"\n")


class Reader:
    """Events from a pipe that does not block, as far as whole lines have come."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        os.set_blocking(descriptor, False)

    def read(self) -> list[Event]:
        """The events since the last call."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, 65536):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        decoder: Any = msgspec.json.Decoder(Event)
        return [decoder.decode(line) for line in lines if line]
