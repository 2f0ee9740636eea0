"""Units made in this process, one after another."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from meshwright.data.work.engines.threads import single_threaded
from meshwright.data.work.memory import keep_freed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.plan import Stage
    from meshwright.data.work.engines import OnDone


class Inline:
    """The simplest engine."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._held = ExitStack()

    def run(self, stage: Stage, numbers: Sequence[int], on_done: OnDone) -> None:
        """Makes every unit, in order."""
        for number in numbers:
            started = time.process_time()
            stage.make(self.job, number)
            on_done(number, time.process_time() - started)

    def __enter__(self) -> Self:
        self._held.enter_context(single_threaded())
        keep_freed()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._held.close()
