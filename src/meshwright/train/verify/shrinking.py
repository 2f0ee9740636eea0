"""A plan's shape on few ranks: every axis that the plan has, at its smallest.

Where all axes at 2 need more ranks than there are, several plans are made that each leave some axes
out, so that every pair of axes still meets in one of them.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.plan.plan import Schedule
from meshwright.plan.stages import num_chunks

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

AXES = ("pp", "dp", "cp", "tp")
MOST_MICROBATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One shrunk plan and what it needs of a model and a batch."""

    plan: Plan
    layers: int
    heads_multiple: int
    experts_multiple: int
    microbatches: int

    @property
    def world_size(self) -> int:
        """Ranks."""
        p = self.plan
        return int(p.tp) * int(p.pp) * int(p.cp) * int(p.dp)


def trials(job: Job, *, ranks: int) -> list[Trial]:
    """The shrunk plans; MeshwrightError where not even two axes fit `ranks`."""
    if ranks < 1:
        raise MeshwrightError(f"{ranks} ranks cannot run anything", hint="--ranks 8")
    least = {axis: _least(job.plan, axis) for axis in AXES}
    present = [axis for axis in AXES if least[axis] > 1]
    for size in range(len(present), -1, -1):
        sets = [kept for kept in combinations(present, size) if _product(least, kept) <= ranks]
        if sets and (size == len(present) or _covers(sets, present) or size <= 1):
            return [_trial(job, {axis: least[axis] for axis in kept}, ranks) for kept in sets]
    raise AssertionError("the empty set of axes always fits")


def _least(plan: Plan, axis: str) -> int:
    """The smallest degree that still shows the axis: hybrid sharding needs two twos."""
    degree = int(getattr(plan, axis))
    if axis == "dp" and 1 < int(plan.dp_replicate) < degree:
        return 4
    if axis == "dp" and degree > 1 and int(plan.zero_stage) > 0 and int(plan.dp_replicate) > 1:
        return 2
    return min(degree, 2)


def _product(least: dict[str, int], axes: tuple[str, ...]) -> int:
    product = 1
    for axis in axes:
        product *= least[axis]
    return product


def _covers(sets: list[tuple[str, ...]], present: list[str]) -> bool:
    """Whether every pair of axes meets in one of the sets."""
    return all(any(set(pair) <= set(kept) for kept in sets) for pair in combinations(present, 2))


def _trial(job: Job, degrees: dict[str, int], ranks: int) -> Trial:
    """The plan at these degrees, grown towards the real ones while ranks are left."""
    real = job.plan
    grown = dict.fromkeys(AXES, 1) | degrees
    for axis in ("pp", "dp", "tp"):
        if grown[axis] > 1 and _doubled(grown, axis) <= ranks and grown[axis] < 4:
            grown[axis] = grown[axis] * 2 if int(getattr(real, axis)) >= 4 else grown[axis]
    plan = real.replace(
        **grown,
        dp_replicate=_replicate(real, grown["dp"]),
        **_expert_degrees(real, grown),
        cp_inner=min(int(real.cp_inner), grown["cp"]),
        vpp=min(int(real.vpp), 2) if grown["pp"] > 1 else 1,
        micro_batch_size=min(int(real.micro_batch_size), 2),
        loss_chunks=min(int(real.loss_chunks), 4),
        recompute_layers=min(int(real.recompute_layers), 1),
        lora_rank=min(int(real.lora_rank), 4),
        padded_vocab_size=0,
        first_stage_layers=0,
        last_stage_layers=0,
        layout=None,
        **({} if grown["pp"] > 1 else {"schedule": int(Schedule.ONE_F_ONE_B)}),
    )
    chunks = int(num_chunks(plan))
    layers = max(chunks, 2)
    if grown["pp"] > 1 and _is_uneven(job):
        plan = plan.replace(layout=(2, *[1] * (chunks - 1)))
        layers = chunks + 1
    return Trial(
        plan=plan,
        layers=layers,
        heads_multiple=grown["tp"] * grown["cp"],
        experts_multiple=int(plan.ep),
        microbatches=_microbatches(job, plan),
    )


def _doubled(grown: dict[str, int], axis: str) -> int:
    return _product(grown, AXES) * 2 if axis else 0


def _replicate(plan: Plan, dp: int) -> int:
    if int(plan.dp_replicate) == 1:
        return 1
    return dp if int(plan.dp_replicate) == int(plan.dp) else 2


def _expert_degrees(plan: Plan, grown: dict[str, int]) -> dict[str, int]:
    """ep and etp at 2 where the plan has them and the ranks allow it."""
    ranks = grown["dp"] // _replicate(plan, grown["dp"]) * grown["cp"] * grown["tp"]
    ep = 2 if int(plan.ep) > 1 and ranks % 2 == 0 else 1
    etp = 2 if int(plan.etp) > 1 and ranks % (2 * ep) == 0 else 1
    if int(plan.ep) >= 4 and etp == 1 and ranks % 4 == 0:
        ep = 4
    return {"ep": ep, "etp": etp}


def _is_uneven(job: Job) -> bool:
    """Whether stages of the real plan hold different numbers of layers."""
    from meshwright.plan.stages import chunk_layers

    return len(set(chunk_layers(job.model, job.plan))) > 1


def _microbatches(job: Job, plan: Plan) -> int:
    """As many as the job has, at most 4, and enough for the schedule."""
    from meshwright.plan.job import num_microbatches

    wanted = min(int(num_microbatches(job)), MOST_MICROBATCHES)
    pp = int(plan.pp)
    if pp == 1:
        return wanted
    least = 2 * pp if int(plan.schedule) in (Schedule.DUALPIPE_V, Schedule.ZB_V) else pp
    return max(wanted, least)
