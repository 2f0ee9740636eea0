"""Places weight gradients into a schedule of forwards and input gradients.

Zero-bubble schedules fix the order of forward and backward passes and put weight gradients where a
rank would otherwise wait (arXiv 2401.10241, section 3.1). Here that is done by running the order on
a clock where each operation takes one unit, with a limit on the activations a rank may hold.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.cost.schedules.definition import Kind, Operation, Placement
from meshwright.cost.schedules.placement import upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

Slot = tuple[int, int, int]  # (kind, rank, chunk)
Key = tuple[int, int, int, int]  # and the micro-batch


def numbered(steps: Sequence[tuple[Kind, int]]) -> list[Operation]:
    """Operations from (kind, chunk) in order; the n-th of a pair is micro-batch n."""
    counts: Counter[tuple[Kind, int]] = Counter()
    operations = []
    for kind, chunk in steps:
        operations.append(Operation(kind, counts[kind, chunk], chunk))
        counts[kind, chunk] += 1
    return operations


def with_weights(
    orders: Sequence[Sequence[Operation]],
    *,
    placement: Placement,
    chunks: int,
    limits: Sequence[int],
) -> list[list[Operation]]:
    """The orders with every weight gradient placed.

    At each unit of time a rank runs its next operation if the input is there and a forward pass
    would not hold more than `limits[rank]` chunks; otherwise its oldest weight gradient; otherwise
    it waits. Raises `MeshwrightError` when the limits leave no rank anything to do.
    """
    pp = len(orders)
    sources = _sources(placement, pp, chunks)
    ranks = [_Rank(order, limit) for order, limit in zip(orders, limits, strict=True)]
    done: dict[Key, int] = {}
    clock = 0
    while any(rank.unfinished for rank in ranks):
        ran = [_tick(r, rank, sources, done) for r, rank in enumerate(ranks)]
        if not any(ran):
            raise MeshwrightError("the activation limit leaves the pipeline schedule stuck")
        clock += 1
        for r, operation in enumerate(ran):
            if operation is not None:
                done[operation.kind, r, operation.chunk, operation.microbatch] = clock
    return [rank.result for rank in ranks]


class _Rank:
    """One rank's progress; lives only inside `with_weights`."""

    def __init__(self, order: Sequence[Operation], limit: int) -> None:
        self.order = order
        self.limit = limit
        self.position = 0
        self.held = 0
        self.pending: deque[Operation] = deque()
        self.result: list[Operation] = []

    @property
    def unfinished(self) -> bool:
        """True while operations remain."""
        return self.position < len(self.order) or bool(self.pending)


def _tick(r: int, rank: _Rank, sources: dict[Slot, Slot], done: dict[Key, int]) -> Operation | None:
    """Run one operation of a rank, or nothing."""
    operation = rank.order[rank.position] if rank.position < len(rank.order) else None
    if operation is not None and _may_run(operation, r, rank, sources, done):
        rank.position += 1
        rank.held += operation.kind == Kind.FORWARD
        if operation.kind == Kind.BACKWARD:
            rank.pending.append(operation._replace(kind=Kind.WEIGHT))
    elif rank.pending:
        operation = rank.pending.popleft()
        rank.held -= 1
    else:
        return None
    rank.result.append(operation)
    return operation


def _may_run(
    operation: Operation,
    r: int,
    rank: _Rank,
    sources: dict[Slot, Slot],
    done: dict[Key, int],
) -> bool:
    """True when the operation's input is there and it fits under the limit."""
    if operation.kind == Kind.FORWARD and rank.held >= rank.limit:
        return False
    source = sources.get((operation.kind, r, operation.chunk))
    return source is None or (*source, operation.microbatch) in done


def _sources(placement: Placement, pp: int, chunks: int) -> dict[Slot, Slot]:
    """For (kind, rank, chunk), the (kind, rank, chunk) whose result it needs."""
    sources: dict[Slot, Slot] = {
        (int(Kind.BACKWARD), r, c): (int(Kind.FORWARD), r, c)
        for r in range(pp)
        for c in range(chunks)
    }
    for slot, source in upstream(placement, pp=pp, chunks=chunks).items():
        sources[Kind.FORWARD, *slot] = (int(Kind.FORWARD), *source)
        sources[Kind.BACKWARD, *source] = (int(Kind.BACKWARD), *slot)
    return sources
