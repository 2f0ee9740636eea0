"""From the end of a window back to its start, always to what was waited for last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.diagnose.path import noun
from meshwright.diagnose.path.graph import measured
from meshwright.diagnose.split.work import COMMUNICATION, MEMORY

if TYPE_CHECKING:
    from meshwright.diagnose.path.graph import Graph
    from meshwright.diagnose.trace.columns import Longs

GAP, CALL, EVENT = range(3)  # what a piece of the path is a row of


class Piece(NamedTuple):
    """A stretch of the path in nanoseconds since the window began; `row` of `of` names it."""

    kind: str
    of: int
    row: int
    start_ns: int
    end_ns: int


class _Walk:
    """Walks a graph; what it passes is in `pieces`, from the last to the first.

    Columns are lists: single entries of them are read much faster than of arrays.
    """

    def __init__(self, graph: Graph, least_ns: Longs) -> None:
        host, device = graph.host, graph.device
        self.graph = graph
        self.times: list[int] = measured(graph).tolist()
        self.events = 1 + 2 * len(host)  # the first node of the device
        self.pieces: list[Piece] = []
        self.launches, self.allocates = host.launches.tolist(), host.allocates.tolist()
        self.before: list[int] = host.before.tolist()
        self.loading: list[int] = host.doing_ns[noun.LOADING].tolist()
        self.own: list[int] = host.own_ns.tolist()
        self.awaited: list[int] = host.awaited.tolist()
        self.after = host.after_ns.tolist()
        self.kind, self.least = device.kind.tolist(), least_ns.tolist()
        self.start, self.latency = device.start_ns.tolist(), device.latency_ns.tolist()
        self.queued: list[int] = device.queued.tolist()
        self.waits: list[int] = device.waits.tolist()
        self.joins: list[int] = device.joins.tolist()
        self.loads: list[int] = []
        if graph.on_host:
            self.loads = device.doing_ns[noun.LOADING].tolist()
        self.launch: list[int] = device.launch.tolist()

    def add(self, kind: str, of: int, row: int, start: int, end: int) -> None:
        if end > start:
            self.pieces.append(Piece(kind, of, row, start, end))

    def from_the_end(self) -> None:
        graph, device = self.graph, self.graph.device
        at = graph.window_ns
        last = int(np.argmax(device.end_ns)) if len(device) else -1
        if last >= 0 and int(device.end_ns[last]) >= at:
            node = self.events + last
        else:
            node = graph.closing
            self.gap(self.times[node], at, graph.tail_doing_ns[noun.LOADING], row=-1)
        while node:
            node = self.event(node) if node >= self.events else self.call(node)

    def event(self, node: int) -> int:
        """Passes an event of the device; the node that it waited for."""
        row = node - self.events
        start = self.start[row]
        self.work(row, start, self.times[node])
        source = self.queued[row]
        at = self.times[source]
        for other in (self.waits[row], self.joins[row]):
            if other and self.times[other] > at:
                source, at = other, self.times[other]
        launch = self.launch[row]
        if launch and self.times[launch] + self.latency[row] > at:
            self.add(noun.LATENCY, EVENT, row, self.times[launch], start)
            return launch
        if self.graph.on_host:
            self.gap(at, start, self.loads[row], row=row)
        else:
            self.add(noun.DEPENDENCY, EVENT, row, at, start)
        return source

    def work(self, row: int, start: int, end: int) -> None:
        kind = self.kind[row]
        if kind == COMMUNICATION:
            least = min(self.least[row], end - start)
            self.add(noun.COMMUNICATION, EVENT, row, end - least, end)
            self.add(noun.COMMUNICATION_WAIT, EVENT, row, start, end - least)
        else:
            self.add(noun.MEMORY if kind == MEMORY else noun.COMPUTE, EVENT, row, start, end)

    def call(self, node: int) -> int:
        """Passes a call, or what the host did before it; the node that it waited for."""
        row, is_end = divmod(node - 1, 2)
        if not is_end:
            before = self.before[row]
            self.gap(self.times[before], self.times[node], self.loading[row], row=row)
            return before
        start, end = self.times[node - 1], self.times[node]
        awaited = self.awaited[row]
        if awaited and self.times[awaited] + self.after[row] >= start + self.own[row]:
            self.add(noun.SYNCHRONIZATION, CALL, row, self.times[awaited], end)
            return awaited
        kind = noun.LAUNCH if self.launches[row] else noun.HOST
        self.add(noun.ALLOCATION if self.allocates[row] else kind, CALL, row, start, end)
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
