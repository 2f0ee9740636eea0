"""Which collective a thread waits in, from its stack."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from types import FrameType

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "barrier",
    "batch_isend_irecv",
    "gather",
    "scatter",
    "send",
    "recv",
    "reduce",
    "wait",
    "init_process_group",
    "new_group",
)
_IN_TORCH = pattern(r"[/\\](torch|transformers)[/\\]")
_DISTRIBUTED = pattern(r"[/\\]torch[/\\]distributed[/\\]")
_DEPTH = 200


def waiting_in(thread: int) -> str:
    """The collective that a thread of this process is in and who called it; else its own place.

    The thread is looked at first, then the others: on a GPU the backward pass has threads of its
    own. "" where nothing is known.
    """
    frames = sys._current_frames()
    first = frames.pop(thread, None)
    # a frame that holds itself would keep all of them, activations too, until garbage is collected
    frames.pop(threading.get_ident(), None)
    others = [f for f in frames.values() if f is not None]
    for frame in (first, *others):
        found = collective_of(frame)
        if found:
            return found
    return "" if first is None else f"at {_place(first)}"


def collective_of(frame: FrameType | None) -> str:
    """As "all_reduce called at step.py:88", or "" where the stack has no collective."""
    name = ""
    for _ in range(_DEPTH):
        if frame is None:
            return name
        code = frame.f_code
        if _DISTRIBUTED.search(code.co_filename):
            name = _named(code.co_name) or name
        elif name and not _IN_TORCH.search(code.co_filename):
            return f"{name} called at {_place(frame)}"
        frame = frame.f_back
    return name


def _named(function: str) -> str:
    """The function's name when it is one of a collective."""
    bare = function.strip("_")
    return bare if any(bare.startswith(known) for known in COLLECTIVES) else ""


def _place(frame: FrameType) -> str:
    """A line of source; names are cut, as a beat has little room."""
    return f"{frame.f_code.co_filename.rpartition('/')[2][:200]}:{frame.f_lineno}"
