"""Steps of a trace: as the host marked them, and as the device lived them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.rank import Step
from meshwright.diagnose.split.host import marked, named
from meshwright.diagnose.split.intervals import total, union
from meshwright.diagnose.trace.columns import Host

if TYPE_CHECKING:
    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs, Trace

PROFILER_STEP = re.compile(r"^ProfilerStep\b")
# Marks that programs set themselves where they do not step the profiler: "step 7", "iteration=3",
# "train_step", "## step ##", "[pl][profile]run_training_batch" of Lightning.
OWN = re.compile(
    r"^\W*((train(ing)?|global|forward_backward)?[ _.-]?(step|iter(ation)?|batch)"
    r"|run_training_(batch|epoch_step)|train_(one_)?(step|batch)|training_step)[ _.:=#/-]*\d*\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a trace in order, one row each; times are nanoseconds since its origin.

    `start_ns` and `end_ns` are the host's. The device follows: its step ends at the later of the
    host's end and the end of the last event launched in the step, and starts at the later of the
    host's start and the end of the step before (pytorch/kineto#325). `launched` counts these
    events, `last_ns` is the end of the last (0 with none). `of_event` is the step in which each
    device event was launched, -1 outside of all.
    """

    names: tuple[str, ...]
    start_ns: Longs
    end_ns: Longs
    device_start_ns: Longs
    device_end_ns: Longs
    launched: Longs
    last_ns: Longs
    of_event: Longs

    def __len__(self) -> int:
        return len(self.names)


def steps_of(trace: Trace, work: Work) -> Steps:
    """The steps of a trace; none where nothing marks them."""
    names, start, end = _marks(trace)
    of_event = _step_of(start, end, work)
    launched = np.bincount(of_event[of_event >= 0], minlength=len(start)).astype(np.int64)
    last = np.zeros(len(start), dtype=np.int64)
    np.maximum.at(last, of_event[of_event >= 0], trace.device.end_ns[of_event >= 0])
    over = np.maximum(end, last)
    reached = np.maximum.accumulate(over) if len(over) else over
    before = np.concatenate((start[:1], reached[:-1]))
    device_start = np.maximum(start, before)
    return Steps(
        names=names,
        start_ns=start,
        end_ns=end,
        device_start_ns=device_start,
        device_end_ns=np.maximum(over, device_start),
        launched=launched,
        last_ns=last,
        of_event=of_event,
    )


def _marks(trace: Trace) -> tuple[tuple[str, ...], Longs, Longs]:
    """Names and times of the steps that the host marked; those of the profiler are preferred."""
    operators = trace.operators
    rows = marked(trace, PROFILER_STEP)
    if len(rows) == 0:
        rows = _family(trace, named(trace, OWN, Host.ANNOTATION))
    start, end = operators.start_ns[rows], operators.end_ns[rows]
    kept = _outermost(start, end)
    names = tuple(trace.names[n] for n in operators.name[rows[kept]])
    return names, start[kept], end[kept]


def _family(trace: Trace, rows: Longs) -> Longs:
    """Of the marks that look like steps, those of one kind: the kind that covers most time.

    Of kinds that cover the same time, such as a step in a batch, the first to begin holds.
    """
    operators = trace.operators
    kinds: dict[str, list[int]] = {}
    for row in rows.tolist():
        kind = re.sub(r"\d+", "", trace.names[operators.name[row]])
        kinds.setdefault(kind, []).append(row)

    def covered(kind: str) -> int:
        return total(union(operators.start_ns[kinds[kind]], operators.end_ns[kinds[kind]]))

    return np.array(kinds[max(kinds, key=covered)] if kinds else [], dtype=np.int64)


def _outermost(start: Longs, end: Longs) -> Longs:
    """Rows of the intervals that lie in no earlier one; they are in the order of their start."""
    if len(start) == 0:
        return np.zeros(0, dtype=np.int64)
    reach = np.concatenate(([start[0] - 1], np.maximum.accumulate(end)[:-1]))
    return np.flatnonzero(end > reach)


def _step_of(start: Longs, end: Longs, work: Work) -> Longs:
    """The step in which each event was launched, by the host's clock."""
    step = np.searchsorted(start, work.launch_ns, "right") - 1
    inside = (work.call >= 0) & (step >= 0)
    if len(end):
        inside &= work.launch_ns < end[np.maximum(step, 0)]
    return np.where(inside, step, -1)


def host_steps(steps: Steps, origin_ns: int) -> tuple[Step, ...]:
    """The steps by the host's clock."""
    return tuple(
        Step(name=name, start_us=(origin_ns + start) / 1000, dur_us=(end - start) / 1000)
        for name, start, end in zip(
            steps.names, map(int, steps.start_ns), map(int, steps.end_ns), strict=True
        )
    )


def device_steps(steps: Steps, origin_ns: int) -> tuple[Step, ...]:
    """The steps as the device lived them."""
    return tuple(_device_step(steps, n, origin_ns) for n in range(len(steps)))


def _device_step(steps: Steps, n: int, origin_ns: int) -> Step:
    start, end = int(steps.device_start_ns[n]), int(steps.device_end_ns[n])
    host_end, launched = int(steps.end_ns[n]), int(steps.launched[n])
    return Step(
        name=steps.names[n],
        start_us=(origin_ns + start) / 1000,
        dur_us=(end - start) / 1000,
        cpu_dur_us=(host_end - int(steps.start_ns[n])) / 1000,
        device_events=launched,
        device_lag_us=(int(steps.last_ns[n]) - host_end) / 1000 if launched else None,
    )
