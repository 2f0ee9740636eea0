"""How far a build is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from meshwright.base.units import format_count, format_duration, format_rate
from meshwright.report.page import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.work.progress import OnProgress, Progress

_EVERY_S = 5.0  # between two lines where no one can rewrite one


@contextlib.contextmanager
def watching(*, quiet: bool) -> Iterator[OnProgress | None]:
    """What to call with each new state; None when nothing is to be said."""
    if quiet:
        yield None
    elif is_terminal(sys.stderr):
        yield from _bar()
    else:
        yield _Lines()


def line_of(state: Progress) -> str:
    """One state in one line: share, rates, time to go."""
    share = state.bytes_done / state.bytes if state.bytes else 1.0
    parts = [f"{state.stage} {share:4.0%}", f"unit {state.units_done} of {state.units}"]
    if state.bytes_here and state.stage in BY_BYTES:
        parts.append(format_rate(state.bytes_per_s))
    if state.documents:
        parts.append(f"{format_count(state.documents_per_s)} docs/s")
    if state.left_s:
        parts.append(f"{format_duration(state.left_s)} left")
    return f"[{state.place}/{state.stages}] " + ", ".join(parts)


BY_BYTES = ("scan", "tokenize")  # stages whose units weigh bytes of input


class _Lines:
    """Writes a line at the end of each stage, and every few seconds within."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _EVERY_S

    def __call__(self, state: Progress) -> None:
        now, done = time.monotonic(), state.units_done == state.units
        if now < self._next and not (done and state.seconds > 1.0):
            return
        self._next = now + _EVERY_S
        sys.stderr.write(line_of(state) + "\n")
        sys.stderr.flush()


def _bar() -> Iterator[OnProgress]:
    """A bar that rich draws."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=1.0)

        def show(state: Progress) -> None:
            share = state.bytes_done / state.bytes if state.bytes else 1.0
            bars.update(task, completed=share, description=line_of(state))

        yield show
