"""Matrices that are cut over ranks, whole on one of them for a moment.

A unit is a matrix, or a stack of experts' matrices that the same ranks hold. Its owner is one of
the ranks that hold parts of it, chosen so that all have the like amount of work. Units go in
rounds, at most one an owner in each: parts to the owners, work, parts back.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from meshwright.base.noun import dataclass
from meshwright.train.model.share import Box, boxes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor, nn

    Stack = tuple[int, int]  # first matrix, and how many
    Held = list[tuple[int, Stack, tuple[Box, ...]]]  # parameter, stack of it, boxes of that


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One whole: `shape`, and the boxes of each rank that holds some, by rank within the group."""

    parameter: int
    stack: Stack
    shape: tuple[int, ...]
    holders: dict[int, tuple[Box, ...]]

    @property
    def is_cut(self) -> bool:
        """Whether no holder has all of it."""
        return any(len(b) != 1 or b[0].size[-2:] != self.shape[-2:] for b in self.holders.values())

    @property
    def work(self) -> float:
        """What orthogonalizing it costs, in proportion."""
        small, large = sorted(self.shape[-2:])
        return float(prod(self.shape[:-2]) * small * small * large)

    @property
    def senders(self) -> dict[int, tuple[Box, ...]]:
        """Of ranks that hold the same the first alone."""
        found = {boxes: rank for rank, boxes in sorted(self.holders.items(), reverse=True)}
        return {rank: boxes for boxes, rank in found.items()}


class Exchange:
    """Who works on which matrix of `parameters`; made by all ranks of `ranks` together."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, ranks: Any) -> None:
        self._group = ranks
        self._rank, self._size = dist.get_rank(ranks), dist.get_world_size(ranks)
        units = _units(parameters, _told(parameters, ranks))
        self._whole = [u for u in units if not u.is_cut and self._rank in u.holders]
        self._rounds = list(_rounds(_owned([u for u in units if u.is_cut])))

    def apply(self, work: Callable[[Tensor], Tensor], parts: Sequence[Tensor]) -> None:
        """Replaces this rank's parts of all parameters by those of `work` of the whole matrices."""
        for unit in self._whole:
            (box,) = unit.holders[self._rank]
            view = box.of(parts[unit.parameter])
            view.copy_(work(view))
        for owned in self._rounds:
            self._round(owned, work, parts)

    def _round(
        self, owned: dict[int, Unit], work: Callable[[Tensor], Tensor], parts: Sequence[Tensor]
    ) -> None:
        """Parts of one unit an owner there and back."""
        mine = owned.get(self._rank)
        kind = parts[next(iter(owned.values())).parameter]
        received = self._swap(
            {o: _flat(parts, u, self._rank) for o, u in owned.items() if self._rank in u.senders},
            {} if mine is None else {r: _count(b) for r, b in mine.senders.items()},
            kind,
        )
        back: dict[int, Tensor] = {}
        if mine is not None:
            done = work(_joined(mine, received, kind))
            back = {r: torch.cat([done[b.whole].flatten() for b in bs]) for r, bs in _at(mine)}
        held = {o: u for o, u in owned.items() if self._rank in u.holders}
        answers = self._swap(
            back, {o: _count(u.holders[self._rank]) for o, u in held.items()}, kind
        )
        for owner, unit in held.items():
            _put(answers[owner], unit.holders[self._rank], parts[unit.parameter])

    def _swap(
        self, sent: dict[int, Tensor], expected: dict[int, int], kind: Tensor
    ) -> dict[int, Tensor]:
        """What other ranks sent to this one, by rank."""
        ranks = range(self._size)
        inward = [expected.get(r, 0) for r in ranks]
        outward = [sent[r].numel() if r in sent else 0 for r in ranks]
        out = torch.cat([*(sent[r] for r in ranks if r in sent), kind.new_empty(0)])
        answer = kind.new_empty(sum(inward))
        dist.all_to_all_single(answer, out, inward, outward, group=self._group)
        return dict(zip(ranks, answer.split(inward), strict=True))


def _told(parameters: Sequence[nn.Parameter], ranks: Any) -> list[Held]:
    """Which boxes each rank holds, by rank.

    Peers of a measurement are not there to be asked: they are taken to hold as much as this one.
    """
    held = [part for i, p in enumerate(parameters) for part in _stacks(i, p)]
    every: list[Held] = [held for _ in range(dist.get_world_size(ranks))]
    if dist.get_backend(ranks) == "fake":
        return every
    dist.all_gather_object(every, held, group=ranks)
    return every


def _stacks(index: int, parameter: nn.Parameter) -> Iterator[tuple[int, Stack, tuple[Box, ...]]]:
    """The boxes of a parameter by the matrices that they are of.

    Along its first dim a stack of experts' matrices is cut the same way for all that hold the same.
    """
    found: dict[Stack, list[Box]] = defaultdict(list)
    for box in boxes_of(parameter):
        stack = (0, 1) if parameter.ndim == 2 else (box.start[0], box.size[0])
        found[stack].append(box)
    for stack, boxes in found.items():
        yield index, stack, tuple(boxes)


def _units(parameters: Sequence[nn.Parameter], told: list[Held]) -> list[Unit]:
    """All units, in the same order on every rank; boxes count from where a unit begins."""
    holders: dict[tuple[int, Stack], dict[int, tuple[Box, ...]]] = defaultdict(dict)
    for rank, held in enumerate(told):
        for index, stack, boxes in held:
            holders[index, stack][rank] = boxes
    return [
        Unit(
            parameter=index,
            stack=stack,
            shape=(stack[1], *parameters[index].shape[1:])
            if parameters[index].ndim > 2
            else tuple(parameters[index].shape),
            holders=found,
        )
        for (index, stack), found in sorted(holders.items(), key=lambda item: item[0])
    ]


def _owned(units: list[Unit]) -> dict[int, list[Unit]]:
    """Units by owner, the dearest first: each to the holder that has least to do so far."""
    owned: dict[int, list[Unit]] = defaultdict(list)
    load: dict[int, float] = defaultdict(float)
    for unit in sorted(units, key=lambda u: (-u.work, u.parameter, u.stack)):
        owner = min(sorted(unit.holders), key=lambda rank: load[rank])
        load[owner] += unit.work
        owned[owner].append(unit)
    return owned


def _rounds(owned: dict[int, list[Unit]]) -> Iterator[dict[int, Unit]]:
    """One unit of each owner at a time."""
    for number in range(max((len(units) for units in owned.values()), default=0)):
        yield {rank: units[number] for rank, units in owned.items() if number < len(units)}


def _at(unit: Unit) -> Iterator[tuple[int, list[Box]]]:
    """Every holder with its boxes as they lie in the unit."""
    for rank, boxes in unit.holders.items():
        yield rank, [_inside(unit, box) for box in boxes]


def _inside(unit: Unit, box: Box) -> Box:
    """The box counted from the first matrix of its unit."""
    start = (box.start[0] - unit.stack[0], *box.start[1:]) if len(unit.shape) > 2 else box.start
    return Box(start=start, local=box.local, size=box.size)


def _flat(parts: Sequence[Tensor], unit: Unit, rank: int) -> Tensor:
    """The elements of a unit that a rank holds, box after box."""
    part = parts[unit.parameter]
    return torch.cat([box.of(part).flatten() for box in unit.holders[rank]])


def _joined(unit: Unit, received: dict[int, Tensor], kind: Tensor) -> Tensor:
    """The whole unit from what its senders sent."""
    whole = kind.new_empty(unit.shape)
    for rank, boxes in unit.senders.items():
        inside = [_inside(unit, box) for box in boxes]
        pieces = received[rank].split([prod(box.size) for box in inside])
        for box, piece in zip(inside, pieces, strict=True):
            whole[box.whole] = piece.view(box.size)
    return whole


def _put(values: Tensor, boxes: tuple[Box, ...], part: Tensor) -> None:
    """Writes elements, box after box, into this rank's part."""
    for box, piece in zip(boxes, values.split([prod(b.size) for b in boxes]), strict=True):
        box.of(part).copy_(piece.view(box.size))


def _count(boxes: tuple[Box, ...]) -> int:
    return sum(prod(box.size) for box in boxes)
