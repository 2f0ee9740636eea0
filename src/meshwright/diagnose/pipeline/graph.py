"""What waits for what in a step of a pipeline.

On a worker, computes run one after another in the order in which they ran. A receive is posted
once the compute before its own has ended, a send once its compute has; the compute of a receive
waits for it. A send and its receive on the next stage (of the next chunk, on a ring, where stages
hold several) are one transfer, which begins when both sides are there. Gathered parameters come
before the first forward of their chunk; what follows the last compute is a chain in the order in
which it ran. Collectives over data-parallel ranks begin when the last rank is there, those of the
embedding join the first and the last stage, and clipping joins everybody.

The rules are Megatron-LM's schedules (core/pipeline_parallel/schedules.py) as operations show
them, and those that arXiv 2505.05713 states for its replay.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.pipeline.matching import DIRECTIONS, SLACK_US, ends, hops, needed_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.diagnose.pipeline.operations import Floats
    from meshwright.diagnose.pipeline.table import Table

CLIP, EMBEDDING = "optimizer-clip-main-grad", "embedding-grads-all-reduce"
GATHER, SCATTER = "params-all-gather", "grads-reduce-scatter"
SEPARATE, LAYERNORM = "separate-grads-all-reduce", "layernorm-grads-all-reduce"
SYNCED = (GATHER, SCATTER, SEPARATE)
COMPUTES = ("forward-compute", "backward-compute", "weight-compute")
TAIL = ("gc", LAYERNORM, EMBEDDING, SCATTER, SEPARATE, CLIP, "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Nodes that begin together: a transfer's two sides, a collective's stages.

    `over_dp` says that all data-parallel ranks take part.
    """

    members: tuple[int, ...]
    over_dp: bool = False
    communicates: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """`before` are the nodes that each node waits for; `order` is one in which all can run."""

    before: tuple[tuple[int, ...], ...]
    order: tuple[Joined, ...]
    loose: tuple[int, ...] = ()  # nodes of kinds that have no place in a step


def graph_of(table: Table) -> Graph | None:
    """The graph of a step; None where the order of the operations contradicts itself."""
    builder = _Builder(table)
    for stage in builder.stages:
        builder.worker(stage)
    joined = builder.joined()
    order = _ordered(builder.before, joined)
    if order is None:
        return None
    before = tuple(tuple(sorted(nodes)) for nodes in builder.before)
    return Graph(before=before, order=order, loose=tuple(builder.loose))


class _Builder:
    """Collects what waits for what, stage by stage."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.before: list[set[int]] = [set() for _ in table.nodes]
        self.stages = sorted({node.pp for node in table.nodes})
        self.start = _usual(table.start_us)
        self.ended = table.end_us
        self.end = _usual(self.ended)
        self.loose: list[int] = []
        self.nodes: dict[tuple[int, str], list[int]] = {}
        for n, node in enumerate(table.nodes):
            self.nodes.setdefault((node.pp, node.kind), []).append(n)
        self.owner: dict[int, int] = {}  # message -> the compute that sends it or waits for it

    def of(self, stage: int, *kinds: str) -> list[int]:
        """Nodes of these kinds on a stage, in the order in which they ran."""
        nodes = [n for kind in kinds for n in self.nodes.get((stage, kind), ())]
        return sorted(nodes, key=lambda n: (self.start[n], self.end[n], n))

    def chain(self, nodes: list[int]) -> None:
        for earlier, later in pairwise(nodes):
            self.before[later].add(earlier)

    def worker(self, stage: int) -> None:
        """What a worker's own operations wait for."""
        computes = self.of(stage, *COMPUTES)
        self.chain(computes)
        self.messages(stage, computes)
        self.gathers(stage)
        self.tail(stage, computes)

    def messages(self, stage: int, computes: list[int]) -> None:
        """Sends wait for their compute, computes for their receive."""
        place = {node: at for at, node in enumerate(computes)}
        for direction in DIRECTIONS:
            own = self.of(stage, f"{direction}-compute")
            for way in ("send", "recv"):
                nodes = self.of(stage, f"{direction}-{way}")
                self.chain(nodes)
                end = ends(self.table, self.stages)[direction, way]
                real = frozenset(c for c in own if (stage, self.chunk(c)) != end)
                matched = needed_by(nodes, own, way=way, real=real, start=self.start, end=self.end)
                self.owner |= matched
                for node, compute in matched.items():
                    if way == "send":
                        self.before[node].add(compute)
                    else:
                        self.before[compute].add(node)
                        self.posted(node, computes[: place[compute]])

    def chunk(self, node: int) -> int:
        return max(int(self.table.chunk[node]), 0)

    def posted(self, receive: int, earlier: list[int]) -> None:
        """A receive waits for the last compute before its own that had ended when it began."""
        began = self.table.start_us[receive] + SLACK_US
        for compute in reversed(earlier):
            if (self.ended[compute] <= began).mean() >= 0.5:
                self.before[receive].add(compute)
                return

    def gathers(self, stage: int) -> None:
        """Parameters of a chunk come before its first forward."""
        gathers, forwards = self.of(stage, GATHER), self.of(stage, "forward-compute")
        self.chain(gathers)
        chunk = self.table.chunk
        for gather in gathers:
            same = [f for f in forwards if chunk[f] == chunk[gather] or chunk[gather] < 0]
            if same:
                self.before[same[0]].add(gather)

    def tail(self, stage: int, computes: list[int]) -> None:
        """What follows the last compute, one after another; reductions may run under backward."""
        last = computes[-1] if computes else None
        after = self.start[last] if last is not None else -np.inf
        early = [n for n in self.of(stage, SCATTER) if self.start[n] < self.end_of(last)]
        for node in early:
            self.under(node, computes)
        self.chain(early)
        known = {*COMPUTES, *TAIL, GATHER}
        others = {kind for pp, kind in self.nodes if pp == stage} - known
        others = {kind for kind in others if not kind.endswith(("-send", "-recv"))}
        nodes = [n for n in self.of(stage, *TAIL, *others) if n not in early]
        self.loose += [n for n in nodes if self.start[n] < after]
        chained = [n for n in nodes if self.start[n] >= after]
        chained.sort(key=lambda n: (self.start[n], _rank(self.table.nodes[n].kind)))
        self.chain([*([last] if last is not None else []), *chained])
        if early and chained:
            self.before[chained[0]].add(early[-1])

    def end_of(self, node: int | None) -> float:
        return float(self.end[node]) - SLACK_US if node is not None else -np.inf

    def under(self, scatter: int, computes: list[int]) -> None:
        """A reduction waits for the last backward that had ended when it began."""
        began = self.start[scatter] + SLACK_US
        done = [c for c in computes if self.end[c] <= began]
        if done:
            self.before[scatter].add(done[-1])

    def joined(self) -> list[Joined]:
        """Every node once, with those that it begins together with."""
        first_last = sorted({self.stages[0], self.stages[-1]})
        out = [
            *self.transfers(),
            *_across(self.of, EMBEDDING, first_last, over_dp=False),
            *_across(self.of, CLIP, self.stages, over_dp=True),
        ]
        taken = {n for group in out for n in group.members}
        for n, node in enumerate(self.table.nodes):
            if n not in taken:
                synced = node.kind in SYNCED
                out.append(Joined(members=(n,), over_dp=synced, communicates=synced))
        return out

    def transfers(self) -> list[Joined]:
        """Sends with their receives; a compute waits for the other where neither was recorded."""
        out: list[Joined] = []
        for hop in hops(self.table, self.of, self.stages, self.owner):
            if hop.send is not None and hop.receive is not None:
                out.append(Joined(members=(hop.send, hop.receive)))
            else:
                self.before[hop.receiver].add(hop.sender if hop.send is None else hop.send)
        return out


def _usual(times: Floats) -> Floats:
    """The usual place of each node among the others: the median over ranks and steps."""
    usual: Floats = np.median(times, axis=(1, 2))
    return usual


def _rank(kind: str) -> int:
    return TAIL.index(kind) if kind in TAIL else len(TAIL)


def _across(
    of: Callable[..., list[int]], kind: str, stages: list[int], *, over_dp: bool
) -> list[Joined]:
    """The first operations of a kind on every stage begin together, so do the second ones, ..."""
    rows = [of(stage, kind) for stage in stages]
    rows = [row for row in rows if row]
    count = min(map(len, rows), default=0)
    return [Joined(members=tuple(row[i] for row in rows), over_dp=over_dp) for i in range(count)]


def _ordered(before: list[set[int]], joined: list[Joined]) -> tuple[Joined, ...] | None:
    """The groups in an order in which each can run; None where they wait for one another."""
    group_of = {n: g for g, group in enumerate(joined) for n in group.members}
    waits: list[set[int]] = [
        {group_of[u] for n in group.members for u in before[n]} for group in joined
    ]
    if any(g in waits[g] for g in range(len(joined))):
        return None
    after: list[list[int]] = [[] for _ in joined]
    for g, earlier in enumerate(waits):
        for u in earlier:
            after[u].append(g)
    missing = [len(w) for w in waits]
    ready = [g for g, count in enumerate(missing) if not count]
    out: list[Joined] = []
    while ready:
        g = ready.pop()
        out.append(joined[g])
        for later in after[g]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    return tuple(out) if len(out) == len(joined) else None
