"""One part of several: makes its share of the units by another engine and waits for the rest.

The parts meet on the folder of finished units alone, which they share. At the end of each stage a
part looks until the units of the others are there; stages of a single unit are made by part 0.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.plan import Stage
    from meshwright.data.work.board import Board
    from meshwright.data.work.engines import Engine, OnDone

_LOOK_S = (0.1, 2.0)  # between two looks: at first, and at last


class Array:
    """The share of `board.part`, made by `engine`."""

    def __init__(
        self, job: Job, engine: Engine, board: Board, *, is_finished: Callable[[], bool]
    ) -> None:
        """`is_finished` says whether part 0 has made the output, after which no unit is left."""
        self.job = job
        self.is_finished = is_finished
        self.engine = engine
        self.board = board
        self._held = ExitStack()

    def run(self, stage: Stage, numbers: Sequence[int], on_done: OnDone) -> None:
        """Makes this part's units; returns when those of the others are there too."""
        part = self.board.part
        self.engine.run(stage, [number for number in numbers if part.has(number)], on_done)
        missing = [number for number in numbers if not part.has(number)]
        pause_s = _LOOK_S[0]
        while missing:
            found = [number for number in missing if stage.is_done(self.job, number)]
            if not found and self.is_finished():
                return
            for number in found:
                on_done(number, 0.0)
            there = set(found)
            missing = [number for number in missing if number not in there]
            owed = {number % part.count: number for number in reversed(missing)}
            for owner, number in sorted(owed.items()):
                self.board.check(owner, f"unit {number} of {stage.name}")
            if missing:
                time.sleep(pause_s)
                pause_s = _LOOK_S[0] if found else min(2 * pause_s, _LOOK_S[1])

    def wait_for_output(self) -> None:
        """Returns when part 0 has made the output."""
        while not self.is_finished():
            self.board.check(0, "the output")
            time.sleep(_LOOK_S[1])

    def __enter__(self) -> Self:
        with ExitStack() as held:  # an engine that cannot start is told to the others
            held.enter_context(self.board)
            held.enter_context(self.engine)
            self._held = held.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.__exit__(kind, error, trace)
