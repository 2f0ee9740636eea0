"""Sizes of every axis of a plan, and that they fold over the same ranks; needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from meshwright.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Sizes of every axis of one plan."""

    pp: int
    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int
    efsdp: int
    ep: int
    etp: int

    @property
    def fsdp(self) -> int:
        """Ranks that dense parameters are sharded over."""
        return self.dp_shard * self.cp

    @property
    def batch(self) -> int:
        """Ranks that see different tokens."""
        return self.dp_replicate * self.fsdp

    @property
    def world_size(self) -> int:
        """Ranks that the plan occupies."""
        return self.pp * self.dp_replicate * self.dp_shard * self.cp * self.tp

    def of(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        """Sizes along `axes`."""
        return tuple(getattr(self, axis) for axis in axes)


def degrees_of(plan: Plan) -> Degrees:
    """The axes of one plan; MeshwrightError where they do not fold over the same ranks.

    Without ZeRO (stage 0) nothing is sharded, so every replica is one of dp_replicate.
    """
    dp, cp, tp = int(plan.dp), int(plan.cp), int(plan.tp)
    replicate = dp if int(plan.zero_stage) == 0 else int(plan.dp_replicate)
    ep, etp = int(plan.ep), int(plan.etp)
    if dp % replicate:
        raise MeshwrightError(
            f"dp_replicate {replicate} does not divide dp {dp}",
            hint=f"set plan.dp_replicate to a divisor of {dp}",
        )
    ranks = dp // replicate * cp * tp
    if ranks % (ep * etp):
        raise MeshwrightError(
            f"ep * etp = {ep * etp} does not divide the {ranks} ranks of dp_shard * cp * tp",
            hint="choose plan.ep and plan.etp so that their product divides it",
        )
    return Degrees(
        pp=int(plan.pp),
        dp_replicate=replicate,
        dp_shard=dp // replicate,
        cp=cp,
        tp=tp,
        efsdp=ranks // (ep * etp),
        ep=ep,
        etp=etp,
    )
