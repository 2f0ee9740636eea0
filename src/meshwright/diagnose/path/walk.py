"""From the end of a window back to its start, always to what was waited for last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.path import noun
from meshwright.diagnose.path.graph import measured
from meshwright.diagnose.split.work import COMMUNICATION, MEMORY

if TYPE_CHECKING:
    from meshwright.diagnose.path.graph import Graph
    from meshwright.diagnose.trace.columns import Longs

GAP, CALL, EVENT, NOTHING = range(4)  # what a piece of the path is a row of


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of the path in nanoseconds since the window began; `row` of `of` names it."""

    kind: str
    of: int
    row: int
    start_ns: int
    end_ns: int


class _Walk:
    """Walks a graph; what it passes is in `pieces`, from the last to the first."""

    def __init__(self, graph: Graph, least_ns: Longs) -> None:
        self.graph, self.times = graph, measured(graph)
        self.calls = 2 * len(graph.host)
        self.least_ns = least_ns
        self.pieces: list[Piece] = []

    def add(self, kind: str, of: int, row: int, start: int, end: int) -> None:
        if end > start:
            self.pieces.append(Piece(kind=kind, of=of, row=row, start_ns=start, end_ns=end))

    def from_the_end(self) -> None:
        graph, times = self.graph, self.times
        device = graph.device
        at = graph.window_ns
        last = int(np.argmax(device.end_ns)) if len(device) else -1
        if last >= 0 and int(device.end_ns[last]) >= at:
            node = 1 + self.calls + last
        else:
            node = graph.closing
            self.gap(int(times[node]), at, graph.tail_loading_ns, row=-1)
        while node:
            node = self.event(node) if node > self.calls else self.call(node)

    def event(self, node: int) -> int:
        """Passes an event of the device; the node that it waited for."""
        device, times = self.graph.device, self.times
        row = node - 1 - self.calls
        start, end = int(device.start_ns[row]), int(device.end_ns[row])
        self.work(row, start, end)
        latency = int(device.latency_ns[row])
        choices = [
            (int(times[int(n)]), int(n))
            for n in (device.queued[row], device.waits[row], device.joins[row])
        ]
        launch = int(device.launch[row])
        at, source = max(choices)
        launched = int(times[launch]) + latency if launch else -1
        if launched <= at:
            self.add(noun.DEPENDENCY, EVENT, row, at, start)
            return source
        self.add(noun.LATENCY, EVENT, row, int(times[launch]), start)
        return launch

    def work(self, row: int, start: int, end: int) -> None:
        kind = int(self.graph.device.kind[row])
        if kind == COMMUNICATION:
            least = min(int(self.least_ns[row]), end - start)
            self.add(noun.COMMUNICATION, EVENT, row, end - least, end)
            self.add(noun.COMMUNICATION_WAIT, EVENT, row, start, end - least)
        else:
            self.add(noun.MEMORY if kind == MEMORY else noun.COMPUTE, EVENT, row, start, end)

    def call(self, node: int) -> int:
        """Passes a call, or what the host did before it; the node that it waited for."""
        host, times = self.graph.host, self.times
        row, is_end = divmod(node - 1, 2)
        start, end = int(host.start_ns[row]), int(host.end_ns[row])
        if not is_end:
            before = int(host.before[row])
            self.gap(int(times[before]), start, int(host.loading_ns[row]), row=row)
            return before
        awaited = int(host.awaited[row])
        if awaited and int(times[awaited]) + int(host.after_ns[row]) >= start + int(
            host.own_ns[row]
        ):
            self.add(noun.SYNCHRONIZATION, CALL, row, int(times[awaited]), end)
            return awaited
        kind = noun.ALLOCATION if host.allocates[row] else noun.LAUNCH
        self.add(
            kind if host.launches[row] or host.allocates[row] else noun.HOST, CALL, row, start, end
        )
        return node - 1

    def gap(self, start: int, end: int, loading: int, *, row: int) -> None:
        """The host between calls: what of it loaded data is put first."""
        self.add(noun.HOST, GAP, row, start + loading, end)
        self.add(noun.LOADING, GAP, row, start, start + loading)


def pieces_of(graph: Graph, least_ns: Longs) -> list[Piece]:
    """The critical path from start to end; its pieces touch and fill the window."""
    walk = _Walk(graph, least_ns)
    walk.from_the_end()
    return walk.pieces[::-1]
