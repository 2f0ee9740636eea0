"""What a picture shows of a rank: its kinds of work and its idle time, few bars of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.rank import Bars
from meshwright.diagnose.split.intervals import Spans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Ints, Longs, Trace

LANES = ("compute", "communication", "memory")  # in the order of Work.kind
MOST = {"compute": 700, "communication": 500, "memory": 200}
MOST_IDLE = 600  # in all, the longest
LONGEST_LABEL = 80


def bars_of(trace: Trace, work: Work, idle: Mapping[str, Spans]) -> Bars:
    """Bars of a rank: at most 2,000.

    Work that lies closest together is drawn as one bar, with the name of its longest event; of idle
    time, by owner as `attribution.idle_by_owner` gives it, the longest pieces are kept.
    """
    labels: dict[str, int] = {}
    drawn: list[tuple[int, Spans, Ints]] = []
    for kind, lane in enumerate(LANES):
        spans = joined_up((work.compute, work.communication, work.memory)[kind], MOST[lane])
        names = _longest_names(trace, np.flatnonzero(work.kind == kind), spans)
        drawn.append((kind, spans, _labels(trace, names, labels)))
    owners = [name for name, spans in idle.items() if spans]
    shortest = _shortest_kept(idle)
    for number, owner in enumerate(owners, len(LANES)):
        spans = _at_least(idle[owner], shortest)
        label = labels.setdefault(_words(owner), len(labels))
        drawn.append((number, spans, np.full(len(spans.start), label, dtype=np.int32)))
    return _bars(trace, drawn, lanes=(*LANES, *map(_words, owners)), labels=tuple(labels))


def _bars(
    trace: Trace,
    drawn: list[tuple[int, Spans, Ints]],
    *,
    lanes: tuple[str, ...],
    labels: tuple[str, ...],
) -> Bars:
    epoch = trace.origin_ns + trace.meta.base_ns
    return Bars(
        lanes=lanes,
        labels=labels,
        lane=np.concatenate([np.full(len(s.start), n, dtype=np.int32) for n, s, _ in drawn]),
        label=np.concatenate([label for _, _, label in drawn]),
        start_ns=np.concatenate([s.start for _, s, _ in drawn]) + epoch,
        end_ns=np.concatenate([s.end for _, s, _ in drawn]) + epoch,
    )


def _words(owner: str) -> str:
    """ "idle_host_late_launch" as a picture has it."""
    return "idle: " + owner.removeprefix("idle_").replace("_", " ")


def joined_up(spans: Spans, most: int) -> Spans:
    """At most so many spans: neighbours with the shortest gaps between them become one."""
    if len(spans.start) <= most:
        return spans
    gaps = spans.start[1:] - spans.end[:-1]
    cut = np.sort(np.argpartition(-gaps, most - 1)[: most - 1])
    first = np.concatenate(([0], cut + 1))
    last = np.concatenate((cut, [len(spans.end) - 1]))
    return Spans(spans.start[first], spans.end[last])


def _longest_names(trace: Trace, rows: Longs, spans: Spans) -> Longs:
    """The name of the longest of these events in each span."""
    if not spans:
        return np.zeros(0, dtype=np.int64)
    device = trace.device
    of = np.searchsorted(spans.start, device.start_ns[rows], "right") - 1
    order = np.lexsort((device.end_ns[rows] - device.start_ns[rows], of))
    last = np.searchsorted(of[order], np.arange(len(spans.start)), "right") - 1
    return np.asarray(device.name[rows[order[last]]], dtype=np.int64)


def _labels(trace: Trace, names: Longs, labels: dict[str, int]) -> Ints:
    """Numbers of the labels of these names."""
    told, place = np.unique(names, return_inverse=True)
    numbers = [
        labels.setdefault(trace.names[name][:LONGEST_LABEL], len(labels)) for name in told.tolist()
    ]
    return np.array(numbers, dtype=np.int32)[place]


def _shortest_kept(idle: Mapping[str, Spans]) -> int:
    """The length from which on a piece of idle time is among the longest."""
    lengths = np.concatenate(
        [np.zeros(0, dtype=np.int64), *(s.end - s.start for s in idle.values())]
    )
    if len(lengths) <= MOST_IDLE:
        return 0
    return int(-np.partition(-lengths, MOST_IDLE)[MOST_IDLE]) + 1


def _at_least(spans: Spans, shortest: int) -> Spans:
    kept = spans.end - spans.start >= shortest
    return Spans(spans.start[kept], spans.end[kept])
