"""The order of operations shared by DualPipe and DualPipeV.

Both run two streams of chunks through a rank, chunk 0 and chunk 1, in eight phases whose lengths
depend on the rank's depth (distance from the end where chunk 0 enters) and on the number of ranks
that chunk 0 passes (deepseek-ai/DualPipe, `dualpipe.py` and `dualpipev.py`, `step`).
"""

from __future__ import annotations

import numpy as np

from meshwright.cost.schedules.definition import Column, Kind, Operation, Times


class _Streams:
    """Counters of both chunks while one rank's list is built; lives inside this module."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.next = {kind: [0, 0] for kind in Kind}
        self.pending: list[tuple[int, int]] = []

    def forward(self, chunk: int, *, joined: bool = False) -> None:
        """The next forward pass of `chunk`."""
        self.operations.append(
            Operation(Kind.FORWARD, self._count(Kind.FORWARD, chunk), chunk, joined)
        )

    def backward(self, chunk: int, *, split: bool = False) -> None:
        """The next backward pass of `chunk`; a split one leaves its weight gradient for later."""
        microbatch = self._count(Kind.BACKWARD, chunk)
        kind = Kind.BACKWARD if split else Kind.FULL_BACKWARD
        self.operations.append(Operation(kind, microbatch, chunk))
        if split:
            self.pending.append((microbatch, chunk))

    def weight(self) -> None:
        """The oldest weight gradient left for later."""
        microbatch, chunk = self.pending.pop(0)
        self.operations.append(Operation(Kind.WEIGHT, microbatch, chunk))

    def both(self, forward: int, backward: int) -> None:
        """A forward pass overlapped with a full backward pass."""
        self.forward(forward, joined=True)
        self.backward(backward)

    def _count(self, kind: Kind, chunk: int) -> int:
        self.next[kind][chunk] += 1
        return self.next[kind][chunk] - 1


def two_way_operations(depth: int, ranks: int, num_microbatches: int) -> list[Operation]:
    """All eight phases of the rank at `depth`; needs num_microbatches >= 2 * ranks per chunk."""
    streams = _Streams()
    behind = ranks - 1 - depth
    _fill(streams, depth, behind)
    _steady(streams, behind, num_microbatches - 2 * ranks + depth + 1)
    _drain(streams, depth, behind)
    return streams.operations


def _fill(streams: _Streams, depth: int, behind: int) -> None:
    """Phases 1 to 3: forwards only, then split backwards between forwards of chunk 1."""
    for _ in range(2 * behind):
        streams.forward(0)
    for _ in range(depth + 1):
        streams.forward(0)
        streams.forward(1)
    for _ in range(behind):
        streams.backward(1, split=True)
        streams.weight()
        streams.forward(1)


def _steady(streams: _Streams, behind: int, rounds: int) -> None:
    """Phases 4 and 5: a forward of one chunk overlapped with a backward of the other."""
    for i in range(rounds):
        if i == 0 and behind == 0:  # not overlapped, so that the innermost rank starts sooner
            streams.forward(0)
            streams.backward(1)
        else:
            streams.both(0, 1)
        streams.both(1, 0)
    for _ in range(behind):
        streams.backward(1)
        streams.both(1, 0)


def _drain(streams: _Streams, depth: int, behind: int) -> None:
    """Phases 6 to 8: backwards only, the later ones split, then what weight gradients remain."""
    first_split = (depth + 1) // 2
    for i in range(depth + 1):
        streams.backward(1, split=i > first_split or (i == first_split and depth % 2 == 1))
        streams.backward(0, split=i >= first_split)
    for _ in range(behind):
        streams.weight()
        streams.backward(0, split=True)
    while streams.pending:
        streams.weight()


def two_way_ramp_s(times: Times, *, ranks: Column, share: Column) -> Column:
    """Seconds of fill and drain where both streams pass `ranks` ranks.

    `share` turns the sum over the other ranks into that of one chunk over n = ranks - 1 of them:
    n (f + max(b-w, 0)) + max(n b - f, n f). For w <= b and large n that is the published bubble
    n (f + 2b - w), less the one forward pass that the innermost rank does not overlap.
    """
    forward = times.others_forward_s * share
    backward = (times.others_input_s - times.others_forward_s) * share
    exposed = np.maximum(backward - times.others_weight_s * share, 0.0)
    alone = forward / np.maximum(ranks - 1, 1)
    return forward + exposed + np.maximum(backward - alone, forward)
