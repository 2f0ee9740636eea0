"""Traces of operations made by simulating a pipeline, in the exact layout of the public ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshwright.cost.schedules.definition import Kind
from meshwright.cost.schedules.lists import operations
from meshwright.plan.plan import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

THREADS = ("compute", "pp-comm", "tp-comm", "dp-comm", "misc")
WAYS = {"forward": 1, "backward": -1}


@dataclass
class Made:
    """A run: `work_us(direction, stage, dp, microbatch, chunk, step)` is what a compute takes."""

    pp: int = 4
    vpp: int = 1
    m: int = 8
    dp: int = 2
    steps: int = 3
    work_us: Callable[[str, int, int, int, int, int], float] = lambda d, *_: (
        1e4 * (1 + (d[0] == "b"))
    )
    transfer_us: float = 400.0
    gather_us: float = 3e3
    scatter_us: float = 5e3
    overlapped: bool = False  # reductions and gathers by chunk, under the computes
    no_ops: bool = True  # messages of the model's ends are recorded, as profilers do
    events: list[dict[str, Any]] = field(default_factory=list)
    step_us: list[float] = field(default_factory=list)
    last: dict[tuple[int, int, int], float] = field(default_factory=dict)
    gathered: list[float] = field(default_factory=list)

    def run(self) -> Made:
        """Fills `events`, and `step_us` with the length of every step."""
        for dp in range(self.dp):
            for stage in range(self.pp):
                for n, name in enumerate(THREADS):
                    self._thread(dp, stage, n, f"PP rank {stage}, TP rank 0, {name}")
        origin = 0.0
        for step in range(self.steps):
            ended = self._step(step, origin)
            self.step_us.append(ended - origin)
            origin = ended + 5e3
        return self

    def write(self, path: Path) -> Path:
        """The events as a bare array."""
        path.write_text(json.dumps(self.events))
        return path

    def _tid(self, dp: int, stage: int, thread: int) -> int:
        return (stage * self.dp + dp) * len(THREADS) + thread

    def _thread(self, dp: int, stage: int, thread: int, name: str) -> None:
        tid = self._tid(dp, stage, thread)
        made = {"name": "thread_name", "pid": dp, "tid": tid, "ph": "M", "args": {"name": name}}
        self.events.append(made)

    def _event(
        self, kind: str, place: tuple[int, int, int], start: float, end: float, **args: int
    ) -> None:
        dp, stage, thread = place
        given = {"model_chunk": -1, "mb_id": -1, "seq_id": 0} | args
        self.events.append(
            {
                "name": kind,
                "cat": kind,
                "pid": dp,
                "tid": self._tid(dp, stage, thread),
                "ts": start,
                "dur": end - start,
                "ph": "X",
                "args": given,
            }
        )

    def _step(self, step: int, origin: float) -> float:
        chunks = self.vpp if self.overlapped else 1
        gathered = [origin + self.gather_us * (n + 1) for n in range(chunks)]
        for dp in range(self.dp):
            for stage in range(self.pp):
                for n, end in enumerate(gathered):
                    place, start = (dp, stage, 3), end - self.gather_us
                    kind = "params-all-gather"
                    self._event(kind, place, start, end, step=step, model_chunk=n, seq_id=n)
        self.gathered = gathered
        ends = [self._stage_ends(step, dp, gathered[0]) for dp in range(self.dp)]
        return self._overlapped_tail(step, ends) if self.overlapped else self._tail(step, ends)

    def _overlapped_tail(self, step: int, ends: list[list[float]]) -> float:
        """Each chunk's reduction after its last backward, one after another; then the rest."""
        separate = []
        for stage in range(self.pp):
            reduced = 0.0
            for chunk in sorted(range(self.vpp), key=lambda c: self.last[0, stage, c]):
                began = [max(self.last[dp, stage, chunk], reduced) for dp in range(self.dp)]
                reduced = max(began) + self.scatter_us / self.vpp
                for dp, start in enumerate(began):
                    kind, place = "grads-reduce-scatter", (dp, stage, 3)
                    self._event(kind, place, start, reduced, step=step, model_chunk=chunk)
            joint = max(reduced, *(ends[dp][stage] for dp in range(self.dp))) + 400.0
            for dp in range(self.dp):
                end, place = ends[dp][stage], (dp, stage, 3)
                self._event("gc", (dp, stage, 0), end, end, step=step)
                self._event("separate-grads-all-reduce", place, max(end, reduced), joint, step=step)
            separate.append(joint)
        return self._finish(step, separate)

    def _tail(self, step: int, ends: list[list[float]]) -> float:
        """Embedding, reduction, clipping, optimizer, with the waits that they record."""
        scattered = [0.0] * self.pp
        for stage in range(self.pp):
            began = []
            for dp in range(self.dp):
                start = ends[dp][stage]
                self._event("gc", (dp, stage, 0), start, start, step=step)
                if stage in (0, self.pp - 1) and self.pp > 1:
                    both = max(ends[dp][0], ends[dp][-1]) + 200.0
                    kind = "embedding-grads-all-reduce"
                    self._event(kind, (dp, stage, 3), start, both, step=step)
                    start = both
                began.append(start)
            scattered[stage] = max(began) + self.scatter_us
            for dp, start in enumerate(began):
                end = scattered[stage]
                self._event("grads-reduce-scatter", (dp, stage, 3), start, end, step=step)
        return self._finish(step, scattered)

    def _finish(self, step: int, scattered: list[float]) -> float:
        clipped = max(scattered) + 300.0
        for dp in range(self.dp):
            for stage in range(self.pp):
                kind, place = "optimizer-clip-main-grad", (dp, stage, 3)
                self._event(kind, place, scattered[stage], clipped, step=step)
                self._event("optimizer", (dp, stage, 0), clipped, clipped + 2e3, step=step)
        return clipped + 2e3

    def _stage_ends(self, step: int, dp: int, begin: float) -> list[float]:
        """Runs the computes of one model replica; when the last of each stage ended."""
        lists = operations(Schedule.ONE_F_ONE_B, pp=self.pp, vpp=self.vpp, num_microbatches=self.m)
        at, clock = [0] * self.pp, [begin] * self.pp
        sent: dict[tuple[str, int, int], float] = {}
        while any(a < len(ops) for a, ops in zip(at, lists, strict=True)):
            before = list(at)
            for stage, ops in enumerate(lists):
                while at[stage] < len(ops) and self._runs(
                    step, dp, stage, ops[at[stage]], clock, sent
                ):
                    at[stage] += 1
            assert at != before, "the schedule waits for itself"
        return clock

    def _runs(
        self, step: int, dp: int, stage: int, op: Any, clock: list[float], sent: dict[Any, float]
    ) -> bool:
        direction = "forward" if op.kind is Kind.FORWARD else "backward"
        way, last = WAYS[direction], self.pp * self.vpp - 1
        place = op.chunk * self.pp + stage
        source = (direction, place - way, op.microbatch)
        first = place == (0 if way > 0 else last)
        if not first and source not in sent:
            return False
        start = clock[stage]
        if self.overlapped and direction == "forward":
            clock[stage] = start = max(start, self.gathered[op.chunk])
        if not first:
            start = max(clock[stage], sent[source]) + self.transfer_us
            self._message(step, dp, direction, place - way, sent[source], clock[stage], start)
        elif self.no_ops and self.vpp > 1:
            self._event(f"{direction}-recv", (dp, stage, 1), start, start, step=step)
        end = start + self.work_us(direction, stage, dp, op.microbatch, op.chunk, step)
        args = {"step": step, "model_chunk": op.chunk, "mb_id": op.microbatch}
        self._event(f"{direction}-compute", (dp, stage, 0), start, end, **args)
        sent[direction, place, op.microbatch] = clock[stage] = end
        self.last[dp, stage, op.chunk] = end
        if self.no_ops and self.vpp > 1 and place == (last if way > 0 else 0):
            self._event(f"{direction}-send", (dp, stage, 1), end, end, step=step)
        return True

    def _message(
        self, step: int, dp: int, direction: str, place: int, sent: float, posted: float, end: float
    ) -> None:
        sender, receiver = place % self.pp, (place + WAYS[direction]) % self.pp
        self._event(f"{direction}-send", (dp, sender, 1), sent, end, step=step)
        self._event(f"{direction}-recv", (dp, receiver, 1), posted, end, step=step)
