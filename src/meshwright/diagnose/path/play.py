"""A graph played again, as measured or with some of its time taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.path import noun
from meshwright.diagnose.split.work import COMMUNICATION, MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.diagnose.path.graph import Bools, Graph
    from meshwright.diagnose.trace.columns import Longs

PAUSES = "host_pauses"
PAUSE_NS = 1_000_000  # between two calls of the host, from which it is called a pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The time in a graph that a question may take away; columns as in the graph's two sides."""

    gap_ns: Longs
    own_ns: Longs
    after_ns: Longs
    waits: Bools  # calls that wait for the device
    latency_ns: Longs
    delay_ns: Longs
    work_ns: Longs  # of device events
    tail_ns: int


def weights_of(graph: Graph) -> Weights:
    """All time as measured."""
    host, device = graph.host, graph.device
    return Weights(
        gap_ns=host.gap_ns,
        own_ns=host.own_ns,
        after_ns=host.after_ns,
        waits=host.awaited > 0,
        latency_ns=device.latency_ns,
        delay_ns=device.delay_ns,
        work_ns=device.end_ns - device.start_ns,
        tail_ns=graph.tail_ns,
    )


def order_of(graph: Graph) -> Longs:
    """Nodes in an order in which each comes after all that it starts after.

    By measured time; at one moment first calls that return from waiting, then calls that start,
    then events of the device.
    """
    host, device = graph.host, graph.device
    calls, events = len(host), len(device)
    waits = host.awaited > 0
    nodes = np.arange(1, 1 + 2 * calls + events)
    at = np.zeros(len(nodes), dtype=np.int64)
    rank = np.full(len(nodes), 2, dtype=np.int8)
    at[0 : 2 * calls : 2], rank[0 : 2 * calls : 2] = host.start_ns, 1
    at[1 : 2 * calls : 2] = np.where(waits, host.end_ns, host.start_ns)
    rank[1 : 2 * calls : 2] = np.where(waits, 0, 1)
    at[2 * calls :] = device.start_ns
    return np.asarray(nodes[np.lexsort((nodes, rank, at))], dtype=np.int64)


def played(graph: Graph, weights: Weights, order: Longs) -> int:
    """How long the window takes, in nanoseconds.

    The end of a call that waits for nothing is its start and its own time: only calls that wait
    have a moment of their own there.
    """
    calls, events = len(graph.host), len(graph.device)
    needed = np.ones(1 + 2 * calls + events, dtype=np.bool_)
    needed[2 : 2 + 2 * calls : 2] = weights.waits
    order = order[needed[order]]
    columns = [c[order].tolist() for c in _columns(graph, weights)]
    times = [0] * len(needed)
    for node, a, b, c, d, after_a, after_b, more in zip(order.tolist(), *columns, strict=True):
        at = times[a] + after_a
        other = times[b] + after_b
        if other > at:
            at = other
        if c and times[c] > at:
            at = times[c]
        if d and times[d] > at:
            at = times[d]
        times[node] = at + more
    last = max(times[1 + 2 * calls :], default=0)
    closing, tail = _since_start(graph, weights, np.array([graph.closing]), weights.tail_ns)
    return max(last, times[int(closing[0])] + int(tail[0]))


def _columns(graph: Graph, weights: Weights) -> tuple[Longs, ...]:
    """For each node the four that it starts after, time between it and the first two, its own."""
    host, device = graph.host, graph.device
    calls, events = len(host), len(device)
    sources = np.zeros((4, 1 + 2 * calls + events), dtype=np.int64)
    after = np.zeros((2, sources.shape[1]), dtype=np.int64)
    takes = np.zeros(sources.shape[1], dtype=np.int64)
    starts, ends = slice(1, 1 + 2 * calls, 2), slice(2, 2 + 2 * calls, 2)
    tail = slice(1 + 2 * calls, sources.shape[1])
    sources[0, starts], after[0, starts] = _since_start(graph, weights, host.before, weights.gap_ns)
    sources[0, ends], after[0, ends] = np.arange(1, 1 + 2 * calls, 2), weights.own_ns
    sources[1, ends] = np.where(weights.waits, host.awaited, 0)
    after[1, ends] = np.where(weights.waits, weights.after_ns, 0)
    sources[0, tail], after[0, tail] = device.launch, weights.latency_ns
    sources[1, tail], sources[2, tail], sources[3, tail] = device.queued, device.waits, device.joins
    takes[tail] = weights.delay_ns + weights.work_ns
    return (*sources, *after, takes)


def _since_start(
    graph: Graph, weights: Weights, node: Longs, after_ns: Longs | int
) -> tuple[Longs, Longs]:
    """The same moment as a node and what comes after it, where ends of calls are no nodes."""
    calls = len(graph.host)
    is_end = (node > 0) & (node <= 2 * calls) & (node % 2 == 0)
    call = np.where(is_end, (node - 2) // 2, 0)
    if calls == 0:
        return node, node * 0 + after_ns
    plain = is_end & ~weights.waits[call]
    return (
        np.where(plain, node - 1, node),
        after_ns + np.where(plain, weights.own_ns[call], 0),
    )


def questions(
    graph: Graph, *, least_ns: Longs, groups: Mapping[str, Bools]
) -> Iterator[tuple[str, Weights]]:
    """What-ifs that take some time away, by name; `least_ns` of the fastest collective alike."""
    whole = weights_of(graph)
    yield from _of_device(graph, whole, least_ns=least_ns, groups=groups)
    yield from _of_host(graph, whole)


def _of_device(
    graph: Graph, whole: Weights, *, least_ns: Longs, groups: Mapping[str, Bools]
) -> Iterator[tuple[str, Weights]]:
    kind = graph.device.kind
    chosen = {
        noun.COMMUNICATION: kind == COMMUNICATION,
        noun.MEMORY: kind == MEMORY,
        **{f"group {name}": events for name, events in groups.items()},
    }
    for name, events in chosen.items():
        if events.any():
            yield name, replace(whole, work_ns=np.where(events, 0, whole.work_ns))
    shorter = np.where(kind == COMMUNICATION, np.minimum(whole.work_ns, least_ns), whole.work_ns)
    if (shorter < whole.work_ns).any():
        yield noun.COMMUNICATION_WAIT, replace(whole, work_ns=shorter)


def _of_host(graph: Graph, whole: Weights) -> Iterator[tuple[str, Weights]]:
    """The host's own time lies before its calls, or, where it computes, before events."""
    host, device = graph.host, graph.device
    between = whole.delay_ns if graph.on_host else whole.gap_ns

    def with_gaps(gap_ns: Longs, tail_ns: int) -> Weights:
        if graph.on_host:
            return replace(whole, delay_ns=gap_ns, tail_ns=tail_ns)
        return replace(whole, gap_ns=gap_ns, tail_ns=tail_ns)

    parts = device.doing_ns if graph.on_host else host.doing_ns
    for name, part in parts.items():
        tail_part = graph.tail_doing_ns[name]
        if part.any() or tail_part:
            yield name, with_gaps(between - part, whole.tail_ns - tail_part)
    loads, tail_loads = parts[noun.LOADING], graph.tail_doing_ns[noun.LOADING]
    if len(host) or graph.on_host:
        freed = with_gaps(loads, tail_loads)
        own = np.where(host.allocates, whole.own_ns, 0)
        yield noun.LAUNCH, replace(freed, own_ns=own, latency_ns=np.zeros_like(whole.latency_ns))
    rest, tail_rest = between - loads, whole.tail_ns - tail_loads
    if (rest >= PAUSE_NS).any() or tail_rest >= PAUSE_NS:
        tail = tail_loads if tail_rest >= PAUSE_NS else whole.tail_ns
        yield PAUSES, with_gaps(np.where(rest >= PAUSE_NS, loads, between), tail)
    if (whole.waits & ~host.allocates).any():
        yield noun.SYNCHRONIZATION, replace(whole, waits=whole.waits & host.allocates)
    if host.allocates.any():
        own = np.where(host.allocates, 0, whole.own_ns)
        yield noun.ALLOCATION, replace(whole, own_ns=own, waits=whole.waits & ~host.allocates)
