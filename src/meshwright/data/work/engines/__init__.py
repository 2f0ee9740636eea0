"""Who makes the units of a stage: this process, a pool of processes, or many machines.

An engine is a context manager with `run(stage, numbers, on_done)`: it has `stage.make(job, number)`
called for every number, in any order and anywhere, and calls `on_done(number, cpu_s)` here after
each, `cpu_s` being the seconds of CPU that it took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.plan import Stage

    Make = Callable[[Job, int], None]
    OnDone = Callable[[int, float], None]


class Engine(Protocol):
    """Makes units; what one of them raises is raised by `run`, the others being abandoned."""

    def run(self, stage: Stage, numbers: Sequence[int], on_done: OnDone) -> None:
        """Makes every unit of `numbers`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
