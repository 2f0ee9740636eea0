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
    merged = _merged(pieces, trace.device.name[graph.device.row].tolist())
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


def _merged(pieces: Sequence[Piece], names: Sequence[int]) -> list[Piece]:
    """The same path with neighbors as one: the host's work, or events of one name."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last is not None and last.kind == piece.kind and _alike(last, piece, names):
            longer = max(last, piece, key=lambda p: p.end_ns - p.start_ns)
            merged[-1] = Piece(piece.kind, longer.of, longer.row, last.start_ns, piece.end_ns)
        else:
            merged.append(piece)
    return merged


def _alike(before: Piece, after: Piece, names: Sequence[int]) -> bool:
    """Whether two neighbors of a kind are one stretch."""
    if before.of == EVENT and after.of == EVENT:
        return names[before.row] == names[after.row]
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
