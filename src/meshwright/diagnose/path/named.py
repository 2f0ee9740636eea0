"""Names for the longest stretches of a path, as they stand in the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.path.noun import Stretch
from meshwright.diagnose.path.walk import CALL, EVENT, GAP, Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.path.graph import Graph
    from meshwright.diagnose.trace.columns import Trace

MOST = 20


def longest_of(
    trace: Trace, graph: Graph, pieces: Sequence[Piece], *, low: int
) -> tuple[Stretch, ...]:
    """The longest pieces with their names, in the order of time; neighbors of a kind are one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and _alike(graph, trace, merged[-1], piece):
            last = merged.pop()
            longer = max(last, piece, key=lambda p: p.end_ns - p.start_ns)
            piece = Piece(piece.kind, longer.of, longer.row, last.start_ns, piece.end_ns)
        merged.append(piece)
    chosen = sorted(merged, key=lambda p: p.start_ns - p.end_ns)[:MOST]
    return tuple(
        Stretch(
            kind=piece.kind,
            name=_name(trace, graph, piece, low=low),
            start_us=piece.start_ns / 1000,
            dur_us=(piece.end_ns - piece.start_ns) / 1000,
        )
        for piece in sorted(chosen, key=lambda p: p.start_ns)
    )


def _alike(graph: Graph, trace: Trace, before: Piece, after: Piece) -> bool:
    """Whether two neighbors are one stretch: the host's work, or kernels of one name."""
    if before.kind != after.kind or before.end_ns != after.start_ns:
        return False
    if before.of == EVENT and after.of == EVENT:
        rows = graph.device.row
        name = trace.device.name
        return bool(name[rows[before.row]] == name[rows[after.row]])
    return before.of == GAP and after.of == GAP


def _name(trace: Trace, graph: Graph, piece: Piece, *, low: int) -> str:
    if piece.of == EVENT:
        return trace.names[int(trace.device.name[graph.device.row[piece.row]])]
    if piece.of == CALL:
        return trace.names[int(trace.calls.name[graph.host.row[piece.row]])]
    return _doing(trace, piece.start_ns + low, piece.end_ns + low)


def _doing(trace: Trace, start: int, end: int) -> str:
    """The shortest operator, annotation or frame that covers half of a time; "" none."""
    operators = trace.operators
    last = int(np.searchsorted(operators.start_ns, end))
    from_, to = operators.start_ns[:last], operators.end_ns[:last]
    covered = np.minimum(to, end) - np.maximum(from_, start)
    rows = np.flatnonzero(2 * covered >= end - start)
    if len(rows) == 0:
        return ""
    return trace.names[int(operators.name[rows[np.argmin((to - from_)[rows])]])]
