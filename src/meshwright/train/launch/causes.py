"""Which of several failed ranks is the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.train.launch.codes import described
from meshwright.train.launch.logs import last_lines, log_of

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.train.launch.event import Event

_SHOWN_LINES = 20
_LOST_PEER = (  # what ranks say whose peer has gone
    "Connection reset",
    "Connection closed",
    "connectFullMesh",
    "Broken pipe",
    "recvBytes failed",
    "sendBytes failed",
    "remote process has terminated",
    "NCCL communicator was aborted",
)


def cause_of(failed: list[Event], folder: Path) -> Event:
    """The failure that the others follow from, with the last lines of its rank's log.

    It is a rank that was killed, or one whose last lines do not say that a peer has gone; among
    several the one that ended first. `failed` is in the order of their ends.
    """
    lines = [last_lines(log_of(folder, one.attempt, one.rank), _SHOWN_LINES) for one in failed]
    place = min(range(len(failed)), key=lambda i: (_follows(failed[i], lines[i]), i))
    cause = failed[place]
    others = [str(one.rank) for one in failed if one.rank != cause.rank]
    text = f"rank {cause.rank} ended with {described(cause.code)}"
    text += f", then rank{'s' * (len(others) > 1)} {', '.join(others)}" if others else ""
    return replace(cause, text=text, lines=lines[place])


def _follows(failure: Event, lines: tuple[str, ...]) -> bool:
    """Whether a failure looks like the consequence of another rank's."""
    return failure.code > 0 and any(word in line for line in lines for word in _LOST_PEER)
