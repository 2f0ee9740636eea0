"""A plan's shape on few ranks: every axis that the plan has, at its smallest.

Where all axes at 2 need more ranks than there are, several plans are made that each leave some axes
out, so that every pair of axes still meets in one of them.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import Schedule
from meshwright.plan.stages import chunk_layers, num_chunks

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
    """The shrunk plans: all axes at once, or every pair of them, or each by itself.

    The most that fit `ranks`. MeshwrightError for no ranks at all.
    """
    if ranks < 1:
        raise MeshwrightError(f"{ranks} ranks cannot run anything", hint="--ranks 8")
    least = {axis: _least(job.plan, axis) for axis in AXES}
    present = [axis for axis in AXES if least[axis] > 1]
    for size in range(len(present), -1, -1):
        sets = [kept for kept in combinations(present, size) if _product(least, kept) <= ranks]
        if size <= 1 or _covers(sets, present):
            break
    return [_trial(job, {axis: least[axis] for axis in kept}, ranks) for kept in sets or [()]]


def _least(plan: Plan, axis: str) -> int:
    """The smallest degree that still shows the axis: hybrid sharding needs two twos."""
    degree = int(getattr(plan, axis))
    if axis == "dp" and 1 < int(plan.dp_replicate) < degree:
        return 4
    return min(degree, 2)


def _product(least: dict[str, int], axes: tuple[str, ...]) -> int:
    product = 1
    for axis in axes:
        product *= least[axis]
    return product


def _covers(sets: list[tuple[str, ...]], present: list[str]) -> bool:
    """Whether every pair of axes meets in one of the sets."""
    return all(any(set(pair) <= set(kept) for kept in sets) for pair in combinations(present, 2))


def _trial(job: Job, kept: dict[str, int], ranks: int) -> Trial:
    """The plan at these degrees, grown towards the real ones while ranks are left."""
    degrees = _grown(job.plan, dict.fromkeys(AXES, 1) | kept, ranks)
    plan = _with_stages(job, _small(job.plan, degrees))
    return Trial(
        plan=plan,
        layers=sum(plan.layout) if plan.layout else max(int(num_chunks(plan)), 2),
        heads_multiple=degrees["tp"] * degrees["cp"],
        experts_multiple=int(plan.ep),
        microbatches=_microbatches(job, plan),
    )


def _grown(plan: Plan, degrees: dict[str, int], ranks: int) -> dict[str, int]:
    """Axes at 2 become 4 where the plan has as much and the ranks are enough."""
    for axis in ("pp", "dp", "tp"):
        room = 2 * _product(degrees, AXES) <= ranks
        if degrees[axis] == 2 and int(getattr(plan, axis)) >= 4 and room:
            degrees = degrees | {axis: 4}
    return degrees


def _small(plan: Plan, degrees: dict[str, int]) -> Plan:
    """The plan at the degrees, its other sizes small too."""
    pipelined = degrees["pp"] > 1
    return plan.replace(
        **degrees,
        **_expert_degrees(plan, degrees),
        dp_replicate=_replicate(plan, degrees["dp"]),
        cp_inner=min(int(plan.cp_inner), degrees["cp"]),
        vpp=min(int(plan.vpp), 2) if pipelined else 1,
        schedule=int(plan.schedule) if pipelined else int(Schedule.ONE_F_ONE_B),
        micro_batch_size=min(int(plan.micro_batch_size), 2),
        loss_chunks=min(int(plan.loss_chunks), 4),
        recompute_layers=min(int(plan.recompute_layers), 1),
        lora_rank=min(int(plan.lora_rank), 4),
        padded_vocab_size=0,
        first_stage_layers=0,
        last_stage_layers=0,
        embedding_in_split=False,
        loss_in_split=False,
        layout=None,
    )


def _with_stages(job: Job, plan: Plan) -> Plan:
    """One layer a chunk; two in the first one where the real stages are uneven."""
    uneven = len(set(chunk_layers(job.model, job.plan))) > 1
    if int(plan.pp) == 1 or not uneven:
        return plan
    return plan.replace(layout=(2, *[1] * (int(num_chunks(plan)) - 1)))


def _replicate(plan: Plan, dp: int) -> int:
    if dp == 1 or int(plan.dp_replicate) == 1:
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


def _microbatches(job: Job, plan: Plan) -> int:
    """As many as the job has, at most 4, and enough for the schedule."""
    wanted = min(int(num_microbatches(job)), MOST_MICROBATCHES)
    pp = int(plan.pp)
    if pp == 1:
        return wanted
    least = 2 * pp if int(plan.schedule) in (Schedule.DUALPIPE_V, Schedule.ZB_V) else pp
    return max(wanted, least)
