"""Traces of a window of steps by torch's profiler, one file a rank.

What is no operator is marked by the names that readers of traces know: a step is ProfilerStep#N,
waiting for data the iterator of a data loader. A trace carries an entry "meshwright" that says on
what the run computed and under which plan (in base64, since Kineto replaces backslashes in it).
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing import Self

    from meshwright.train.settings import Spec

TRACES = "traces"  # folder in that of the run
FEEDING = "enumerate(DataLoader)#Feeder.next"
SAVING = "checkpoint#Keeper.save"
EVALUATING = "evaluation#Evaluation.loss"


def mark(name: str) -> Any:
    """A context manager: what is done in it stands in a trace under `name`."""
    return torch.profiler.record_function(name)


class Profiling:
    """Profiles the steps from the first to the last of the window, both included."""

    def __init__(self, spec: Spec, *, device: torch.device, rank: int) -> None:
        self._window = spec.run.telling.profile or (0, -1)
        self._folder = Path(spec.run.out) / TRACES
        self._rank = rank
        self._facts = {
            "computes_on": device.type,
            "threads": torch.get_num_threads(),
            "plan_toml_base64": base64.b64encode(spec.plan_toml.encode()).decode(),
        }
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
            self._profiler.add_metadata_json("meshwright", json.dumps(self._facts))
        if self._profiler is not None:
            self._mark = torch.profiler.record_function(f"ProfilerStep#{step}")
            self._mark.__enter__()

    def after(self, step: int) -> bool:
        """Ends the mark of a step; writes the trace after the window's last one, and says so."""
        if self._profiler is None:
            return False
        self._mark.__exit__(None, None, None)
        if step < self._window[1]:
            return False
        self.close()
        return True

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
