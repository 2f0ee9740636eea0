"""Exact event simulation of one pipeline schedule.

Each rank runs its operations in the given order, each as soon as the rank is free and its input
has arrived. The result is the start and end of every operation, from which makespan, bubbles and
held activations follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.cost.schedules.definition import Kind, Operation, Placement
from meshwright.cost.schedules.placement import upstream

if TYPE_CHECKING:
    from numpy.typing import NDArray

Operations = Sequence[Sequence[Operation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long things take, in seconds.

    `seconds[rank, chunk, kind]` is the time of one forward, input-gradient and weight-gradient
    operation (a full backward pass takes the last two). `p2p_s` is the time of one transfer
    between two ranks; where `overlapped` is False the sending rank also waits for it. `start_s`
    delays the first operation of each rank. `extra_s` adds time to single operations, by
    (rank, position in the rank's list).
    """

    seconds: NDArray[np.float64]
    p2p_s: float = 0.0
    overlapped: bool = True
    start_s: NDArray[np.float64] | float = 0.0
    extra_s: Mapping[tuple[int, int], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What every rank does when: `start_s[rank][i]` and `end_s[rank][i]` of its operation i."""

    operations: Operations
    start_s: tuple[NDArray[np.float64], ...]
    end_s: tuple[NDArray[np.float64], ...]

    @property
    def makespan_s(self) -> float:
        """Seconds from the start of the step to the end of the last operation."""
        return max((float(end[-1]) for end in self.end_s if len(end)), default=0.0)

    @property
    def busy_s(self) -> NDArray[np.float64]:
        """Seconds of computation of each rank, shape [pp]."""
        pairs = zip(self.start_s, self.end_s, strict=True)
        return np.array([float(np.sum(end - start)) for start, end in pairs])

    @property
    def bubble_s(self) -> NDArray[np.float64]:
        """Seconds in which each rank does not compute, shape [pp]."""
        return self.makespan_s - self.busy_s


def uniform_durations(
    pp: int, chunks: int, *, forward_s: float, backward_s: float, weight_s: float = 0.0
) -> NDArray[np.float64]:
    """`Durations.seconds` of equal chunks, from the seconds of one chunk; shape [pp, chunks, 3]."""
    return np.tile(np.array([forward_s, backward_s, weight_s]), (pp, chunks, 1))


def simulate(
    operations: Operations, durations: Durations, *, placement: Placement = Placement.LOOPED
) -> Timeline:
    """Run the operations; linear in their number.

    Raises `MeshwrightError` when the lists wait for each other in a circle, or for an operation
    that no rank performs.
    """
    events = _Events(operations, durations, placement)
    ready = list(range(len(operations)))
    while ready:
        events.advance(ready.pop(), ready)
    stuck = [r for r, ops in enumerate(operations) if len(events.start_s[r]) < len(ops)]
    if stuck:
        rank = stuck[0]
        waiting = operations[rank][len(events.start_s[rank])]
        raise MeshwrightError(f"schedule never runs {_words(waiting)} on pipeline rank {rank}")
    return Timeline(
        operations=operations,
        start_s=tuple(np.array(row) for row in events.start_s),
        end_s=tuple(np.array(row) for row in events.end_s),
    )


def _words(operation: Operation) -> str:
    """An operation in words."""
    kind = Kind(operation.kind).name.lower()
    return f"{kind} of micro-batch {operation.microbatch}, chunk {operation.chunk}"


class _Link(NamedTuple):
    """Where an operation's input comes from: kind and slot, and the delay of the transfer."""

    kind: Kind
    rank: int
    chunk: int
    delay_s: float


# A full backward pass yields the same input gradient as the backward pass alone.
_RESULT = {
    Kind.FORWARD: Kind.FORWARD,
    Kind.BACKWARD: Kind.BACKWARD,
    Kind.WEIGHT: Kind.WEIGHT,
    Kind.FULL_BACKWARD: Kind.BACKWARD,
}


class _Events:
    """Progress of a simulation; lives only inside `simulate`."""

    def __init__(self, operations: Operations, durations: Durations, placement: Placement) -> None:
        pp, chunks, _ = durations.seconds.shape
        self.operations = operations
        self.seconds = [[[f, b, w, b + w] for f, b, w in row] for row in durations.seconds.tolist()]
        self.extra_s = durations.extra_s
        self.inputs = _inputs(placement, pp, chunks, durations.p2p_s)
        self.blocking = {} if durations.overlapped else _sends(self.inputs, durations.p2p_s)
        self.free_s = np.broadcast_to(np.asarray(durations.start_s, float), (pp,)).tolist()
        self.start_s: list[list[float]] = [[] for _ in operations]
        self.end_s: list[list[float]] = [[] for _ in operations]
        self.done: dict[tuple[int, int, int, int], float] = {}
        self.waiting: dict[tuple[int, int, int, int], int] = {}

    def advance(self, rank: int, ready: list[int]) -> None:
        """Run the rank's operations until one lacks its input; wake ranks that now have theirs."""
        operations = self.operations[rank]
        position = len(self.start_s[rank])
        while position < len(operations):
            joined = operations[position].joined and position + 1 < len(operations)
            group = operations[position : position + 1 + joined]
            arrival = self.arrival_s(rank, group)
            if arrival is None:
                return
            self.run(rank, group, arrival, ready)
            position += len(group)

    def arrival_s(self, rank: int, group: Sequence[Operation]) -> float | None:
        """When the inputs of all of `group` are there; None, and noted, when one is missing."""
        latest = 0.0
        for kind, microbatch, chunk, _ in group:
            link = self.inputs.get((kind, rank, chunk))
            if link is None:
                continue
            source = (link.kind, link.rank, link.chunk, microbatch)
            done = self.done.get(source)
            if done is None:
                self.waiting[source] = rank
                return None
            latest = max(latest, done + link.delay_s)
        return latest

    def run(self, rank: int, group: Sequence[Operation], arrival: float, ready: list[int]) -> None:
        """Run `group` one after the other; all its results leave when the last is done."""
        clock = max(self.free_s[rank], arrival)
        start_s, end_s, seconds = self.start_s[rank], self.end_s[rank], self.seconds[rank]
        for kind, _, chunk, _ in group:
            start_s.append(clock)
            clock += seconds[chunk][kind]
            if self.extra_s:
                clock += self.extra_s.get((rank, len(end_s)), 0.0)
            end_s.append(clock)
        blocked = 0.0
        for kind, microbatch, chunk, _ in group:
            key = (_RESULT[kind], rank, chunk, microbatch)
            self.done[key] = clock
            blocked = max(blocked, self.blocking.get(key[:3], 0.0))
            if key in self.waiting:
                ready.append(self.waiting.pop(key))
        self.free_s[rank] = clock + blocked


def _inputs(
    placement: Placement, pp: int, chunks: int, p2p_s: float
) -> dict[tuple[int, int, int], _Link]:
    """For (kind, rank, chunk), the operation of the same micro-batch that it waits for.

    A backward pass waits for the next stage's, the last stage's for its own forward pass, a weight
    gradient for its own backward pass. What is missing (the first forward) waits for nothing.
    """
    links: dict[tuple[int, int, int], _Link] = {}

    def backward_after(slot: tuple[int, int], source: _Link) -> None:
        for kind in (Kind.BACKWARD, Kind.FULL_BACKWARD):
            links[kind, *slot] = source

    for slot in ((rank, chunk) for rank in range(pp) for chunk in range(chunks)):
        links[Kind.WEIGHT, *slot] = _Link(Kind.BACKWARD, *slot, 0.0)
        backward_after(slot, _Link(Kind.FORWARD, *slot, 0.0))
    for slot, source in upstream(placement, pp=pp, chunks=chunks).items():
        delay_s = p2p_s if slot[0] != source[0] else 0.0
        links[Kind.FORWARD, *slot] = _Link(Kind.FORWARD, *source, delay_s)
        backward_after(source, _Link(Kind.BACKWARD, *slot, delay_s))
    return links


def _sends(
    inputs: Mapping[tuple[int, int, int], _Link], p2p_s: float
) -> dict[tuple[int, int, int], float]:
    """Seconds a rank waits after an operation whose result it sends to another rank."""
    return {
        (link.kind, link.rank, link.chunk): p2p_s
        for (_, rank, _), link in inputs.items()
        if link.rank != rank
    }


def peak_in_flight(operations: Operations, *, weight_share: float = 1.0) -> NDArray[np.float64]:
    """Most activations each rank holds at once, in chunks, shape [pp].

    A chunk's activations are held from its forward to its backward pass; where the backward pass is
    split, `weight_share` of them (what the weight gradient needs) until that is done.
    """
    change = np.array([1.0, weight_share - 1.0, -weight_share, -1.0])
    held = (np.cumsum(change[[op.kind for op in ops]]) for ops in operations)
    return np.array([float(h.max(initial=0.0)) for h in held])
