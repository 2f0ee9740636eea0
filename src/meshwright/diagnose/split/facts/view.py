"""A rank's trace as the further figures see it: with its window, idle time and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.split.classes import KINDS
from meshwright.diagnose.split.intervals import NOTHING, Spans, clip, inside, subtract, total, union
from meshwright.diagnose.split.unions import one_window
from meshwright.diagnose.split.work import joined, names_like
from meshwright.diagnose.trace.columns import Device, Host

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.diagnose.split.host import HostWork
    from meshwright.diagnose.split.steps import Steps
    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs, Trace

    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A trace and what its split found.

    `window` is that of the attribution, `idle` its idle time by owner. By device event: `operator`
    is the row of the operator that asked for it (-1 unknown),
    `within` whether it starts in the window, `kernel` whether it is a kernel that does.
    """

    trace: Trace
    work: Work
    steps: Steps
    host: HostWork
    window: tuple[int, int]
    idle: Mapping[str, Spans]
    operator: Longs
    within: Bools
    kernel: Bools

    def of_kind(self, *kinds: str) -> Bools:
        """Which device events of the window are of these kinds."""
        return self.within & np.isin(self.work.finer, [KINDS.index(kind) for kind in kinds])

    def named(self, pattern: re.Pattern[str]) -> Bools:
        """Which device events of the window have such a name."""
        device = self.trace.device
        return self.within & names_like(self.trace.names, device.name, pattern)

    def asked_by(self, pattern: re.Pattern[str]) -> Bools:
        """Which device events of the window an operator of such a name asked for."""
        known = np.flatnonzero(self.within & (self.operator >= 0))
        names = self.trace.operators.name[self.operator[known]]
        told = np.zeros(len(self.within), dtype=np.bool_)
        told[known] = names_like(self.trace.names, names, pattern)
        return told

    def launched_in(self, spans: Spans) -> Bools:
        """Which device events of the window were launched in these moments."""
        return self.within & (self.work.call >= 0) & inside(spans, self.work.launch_ns)

    def spans(self, events: Bools) -> Spans:
        """When any of these device events ran, in the window."""
        device = self.trace.device
        return clip(union(device.start_ns[events], device.end_ns[events]), *self.window)

    def lasted_us(self, events: Bools) -> float:
        """Microseconds of the window in which any of these device events ran."""
        return total(self.spans(events)) / 1000

    def all_idle(self) -> Spans:
        """When the device had nothing to do, in the window."""
        return subtract(union(*one_window(*self.window)), self.work.busy)

    def marks(self, pattern: re.Pattern[str], *kinds: Host) -> Spans:
        """The moments of the host's events of such a name and kind."""
        operators = self.trace.operators
        rows = np.flatnonzero(np.isin(operators.kind, kinds))
        rows = rows[names_like(self.trace.names, operators.name[rows], pattern)]
        return union(operators.start_ns[rows], operators.end_ns[rows]) if len(rows) else NOTHING


def view_of(
    trace: Trace,
    work: Work,
    steps: Steps,
    host: HostWork,
    *,
    window: tuple[int, int],
    idle: Mapping[str, Spans],
) -> View:
    """A view of a trace with device events."""
    device = trace.device
    within = (device.start_ns >= window[0]) & (device.start_ns < window[1])
    return View(
        trace=trace,
        work=work,
        steps=steps,
        host=host,
        window=window,
        idle=idle,
        operator=_operators(trace),
        within=within,
        kernel=within & (device.kind == Device.KERNEL),
    )


def _operators(trace: Trace) -> Longs:
    """The operator that asked for each device event; -1 where the trace has none."""
    operators, external = trace.operators, trace.device.external
    row = np.flatnonzero((operators.kind == Host.OPERATOR) & (operators.external >= 0))
    found = joined(operators.external[row], row, external)
    return np.where(external >= 0, found, -1)
