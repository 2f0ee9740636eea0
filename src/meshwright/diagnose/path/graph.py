"""What waits for what on one rank: calls of the host and events of the device as a graph.

Nodes are moments: 0 the start of the window, 1 + 2i and 2 + 2i start and end of call i, 1 + 2c + j
the end of device event j. Every edge leads from an earlier row to a later one in the order of
`Graph.order`, so that the graph has no cycle whatever the file says. A replay of the unchanged
graph gives the measured times to the nanosecond: what no edge explains is a delay of the event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Bytes, Longs

    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSide:
    """Calls that launch, wait or allocate, in order; nanoseconds since the window began.

    A call starts `gap_ns` after `before` (a node), of which `doing_ns` were spent on what the trace
    names: "data_loading", "checkpoint", "gc", ... It ends `own_ns` after its start, and not before
    `after_ns` after the node `awaited` (0: it does not wait for the device).
    """

    row: Longs  # of the trace's calls
    start_ns: Longs
    end_ns: Longs
    launches: Bools
    allocates: Bools
    before: Longs
    gap_ns: Longs
    doing_ns: Mapping[str, Longs]
    own_ns: Longs
    awaited: Longs
    after_ns: Longs

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSide:
    """Device events in order of their start; nanoseconds since the window began.

    An event starts `delay_ns` after the last of: its launch (a node) and `latency_ns`; the end of
    the event before it on its stream; the ends of events on other streams that it waits for. Node 0
    stands for "none".
    """

    row: Longs  # of the trace's device events
    start_ns: Longs
    end_ns: Longs
    kind: Bytes  # work.COMPUTE, COMMUNICATION, MEMORY
    launch: Longs
    latency_ns: Longs
    queued: Longs  # behind, on its stream
    waits: Longs  # for another stream
    joins: Longs  # another stream again
    delay_ns: Longs
    doing_ns: Mapping[str, Longs]  # what the host did in the delay, where the host computes

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Both sides of a window.

    It ends with the last event, or `tail_ns` after the node `closing`, whichever is later. Where
    the host computes (`on_host`) there are no calls, and delays of events are the host's.
    """

    window_ns: int
    host: HostSide
    device: DeviceSide
    closing: int
    tail_ns: int
    tail_doing_ns: Mapping[str, int]
    on_host: bool = False


def measured(graph: Graph) -> Longs:
    """The measured time of every node."""
    calls, events = len(graph.host), len(graph.device)
    times = np.zeros(1 + 2 * calls + events, dtype=np.int64)
    times[1 : 1 + 2 * calls : 2] = graph.host.start_ns
    times[2 : 2 + 2 * calls : 2] = graph.host.end_ns
    times[1 + 2 * calls :] = graph.device.end_ns
    return times
