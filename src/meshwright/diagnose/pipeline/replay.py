"""A step replayed with other durations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from meshwright.diagnose.pipeline.graph import Graph
    from meshwright.diagnose.pipeline.operations import Floats
    from meshwright.diagnose.pipeline.table import Table


def work_us(table: Table, graph: Graph) -> Floats:
    """How long each operation itself takes, without waiting, shape [nodes, dps, steps].

    A compute's is its duration. The recorded duration of a send, a receive or a collective holds
    the wait for the others, so its own work runs from the start of the last one to come.
    """
    work = table.dur_us.copy()
    end = table.end_us
    for group in graph.order:
        if group.communicates:
            members = list(group.members)
            began = table.start_us[members].max(axis=0)
            if group.over_dp:
                began = np.broadcast_to(began.max(axis=0), began.shape)
            work[members] = np.maximum(end[members] - began, 0.0)
    return work


def replay_us(graph: Graph, work: Floats) -> Floats:
    """End of each operation since the step began, shape [nodes, dps, steps], with this work."""
    end = np.zeros_like(work)
    begin = np.empty(work.shape[1:])
    for group in graph.order:
        begin[:] = 0.0
        for member in group.members:
            for earlier in graph.before[member]:
                np.maximum(begin, end[earlier], out=begin)
        if group.over_dp:
            begin[:] = begin.max(axis=0)
        for member in group.members:
            np.add(begin, work[member], out=end[member])
    return end


def steps_us(graph: Graph, work: Floats) -> Floats:
    """Length of each step with this work, shape [steps]."""
    longest: Floats = replay_us(graph, work).max(axis=(0, 1))
    return longest
