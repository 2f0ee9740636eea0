"""Where a rank stands, and what it therefore needs of every step."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.data.loader.arguments import LARGEST_SIZE, not_whole, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rank's coordinates and the batch that all ranks share."""

    global_batch_size: int
    micro_batch_size: int
    dp_rank: int = 0
    dp_size: int = 1
    cp_rank: int = 0
    cp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1

    @property
    def micro_batches(self) -> int:
        """Micro-batches of this rank in a step."""
        return self.global_batch_size // (self.micro_batch_size * self.dp_size)

    @property
    def is_first(self) -> bool:
        """Whether the embedding stands here."""
        return self.pp_rank == 0

    @property
    def is_last(self) -> bool:
        """Whether the loss stands here."""
        return self.pp_rank == self.pp_size - 1


def checked_place(place: Place, *, seq_len: int, cp_slices: str) -> Place:
    """The place, its numbers as ints; InvalidInput with every reason why it cannot be one."""
    refuse(_wrong_numbers(place))
    refuse(_ranks(place))
    found = Place(**{field.name: int(getattr(place, field.name)) for field in fields(Place)})
    refuse(
        wrong
        for check in (_batch(found), _slices(found, seq_len=seq_len, cp_slices=cp_slices))
        for wrong in check
    )
    return found


def _wrong_numbers(place: Place) -> Iterator[Finding]:
    for name in (field.name for field in fields(Place)):
        least = 0 if name.endswith("_rank") else 1
        yield from not_whole(name, getattr(place, name), least=least, most=LARGEST_SIZE)


def _ranks(place: Place) -> Iterator[Finding]:
    for axis in ("dp", "cp", "pp"):
        rank, size = getattr(place, f"{axis}_rank"), getattr(place, f"{axis}_size")
        if rank >= size:
            reason = f"{axis}_rank = {rank} is none of the {size} ranks"
            yield _finding(f"{axis}_rank", rank, reason, hint=f"0 to {size - 1}")


def _batch(place: Place) -> Iterator[Finding]:
    """The global batch in whole micro-batches, the same number on every rank."""
    together, batch = place.micro_batch_size * place.dp_size, place.global_batch_size
    if batch % together:
        below, above = batch // together * together, -(-batch // together) * together
        nearest = f"{below} or {above}" if below else f"{above}"
        reason = (
            f"global_batch_size = {batch} is no multiple of micro_batch_size"
            f" {place.micro_batch_size} x dp_size {place.dp_size} = {together}"
        )
        yield _finding("global_batch_size", batch, reason, hint=f"the nearest: {nearest}")


def _slices(place: Place, *, seq_len: int, cp_slices: str) -> Iterator[Finding]:
    """Rows in whole slices, two for each rank where they are dealt in zigzag."""
    halves = 2 if cp_slices == "zigzag" else 1
    parts = place.cp_size * (halves if place.cp_size > 1 else 1)
    if seq_len % parts:
        legal = {1, *_divisors(seq_len // halves)} if seq_len % halves == 0 else {1}
        nearest = sorted(legal, key=lambda n: (abs(n - place.cp_size), n))[:2]
        reason = f"rows of {seq_len} tokens do not divide into {parts} slices ({cp_slices})"
        hint = "cp_size " + " or ".join(map(str, sorted(nearest)))
        yield _finding("cp_size", place.cp_size, reason, hint=hint)


def _divisors(number: int) -> set[int]:
    """All of them, in time that grows with the root of the number."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return {*small, *(number // n for n in small)}


def _finding(key: str, value: int, reason: str, *, hint: str) -> Finding:
    return Finding(message=reason, key=key, value=value, reason=reason, hint=hint)
