"""Traces of a window of steps by torch's profiler, one file a rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing import Self

    from meshwright.train.settings import Run

TRACES = "traces"  # folder in that of the run


class Profiling:
    """Profiles the steps from the first to the last of the window, both included."""

    def __init__(self, run: Run, *, rank: int) -> None:
        self._window = run.telling.profile or (0, -1)
        self._folder = Path(run.out) / TRACES
        self._rank = rank
        self._profiler: Any = None
        self._mark: Any = None  # around a step, by the name that torch gives it, with its number

    def before(self, step: int) -> None:
        """Starts with the first step of the window; one that is resumed inside it starts there."""
        first, last = self._window
        if self._profiler is None and first <= step <= last:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self._profiler = torch.profiler.profile(
                activities=activities, record_shapes=True, with_stack=False
            )
            self._profiler.start()
        if self._profiler is not None:
            self._mark = torch.profiler.record_function(f"ProfilerStep#{step}")
            self._mark.__enter__()

    def after(self, step: int) -> None:
        """Ends the mark of a step; writes the trace after the last one of the window."""
        if self._profiler is None:
            return
        self._mark.__exit__(None, None, None)
        if step >= self._window[1]:
            self.close()

    def close(self) -> None:
        """Writes what was recorded, also where the run ends inside the window."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        first, last = self._window
        name = f"steps-{first}-{last}.rank-{self._rank}.json.gz"
        profiler.export_chrome_trace(str(self._folder / name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
