"""Process groups of all ranks by name: their axes, and where ranks stand along them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.across.axes import axis_choices, coordinates
from meshwright.diagnose.across.bus import kind_of
from meshwright.diagnose.trace.columns import Group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.across.table import Rows
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Longs
    from meshwright.plan.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Axes of groups; pipeline coordinate of each rank (-1 unknown); places of expert ranks."""

    axes: Mapping[str, str]
    ambiguous: Mapping[str, tuple[str, ...]]
    stage: Longs
    expert_groups: tuple[tuple[int, ...], ...]


def named_groups(ranks: Sequence[Rank], rows: Rows, *, job: Job | None) -> Named:
    """The groups that the ranks' files and messages name."""
    world = next((r.world_size for r in ranks if r.world_size), None)
    groups = _groups(ranks, rows)
    choices = axis_choices(groups, job=job, world_size=world)
    axes, ambiguous = _decided(choices, _operations(rows))
    place = {n: i for i, n in enumerate(rows.ranks)}
    experts = {
        tuple(place[m] for m in g.ranks if m in place) for g in groups if axes[g.name] == "ep"
    }
    return Named(
        axes=axes,
        ambiguous=ambiguous,
        stage=_stages(rows, groups, axes, job),
        expert_groups=tuple(sorted(experts)),
    )


def _groups(ranks: Sequence[Rank], rows: Rows) -> tuple[Group, ...]:
    """Every (name, members) once, the file's own list first."""
    found: dict[tuple[str, tuple[int, ...]], Group] = {}
    for rank in ranks:
        for group in rank.meta.groups:
            found.setdefault((group.name, group.ranks), group)
    for lane in rows.lanes:
        if lane.group and (lane.group, lane.members) not in found:
            found[lane.group, lane.members] = Group(
                name=lane.group,
                description=lane.description,
                ranks=lane.members,
                size=lane.size,
            )
    return tuple(found.values())


def _operations(rows: Rows) -> Mapping[str, set[str]]:
    """What each group does."""
    keys = np.unique(rows.lane.astype(np.int64) * len(rows.kinds) + rows.kind).tolist()
    found: dict[str, set[str]] = {}
    for lane, kind in (divmod(key, len(rows.kinds)) for key in keys):
        message = rows.kinds[kind].message
        if message is not None:
            found.setdefault(rows.lanes[lane].group, set()).add(kind_of(message))
    return found


def _decided(
    choices: Mapping[str, tuple[str, ...]], operations: Mapping[str, set[str]]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Of several axes over the same ranks: experts exchange all-to-all, gradients are reduced."""
    axes: dict[str, str] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    for name, found in choices.items():
        done = operations.get(name, set())
        exchanges, reduces = "all_to_all" in done, bool(done - {"all_to_all", "", "broadcast"})
        left = found
        if len(found) > 1 and "ep" in found and exchanges != reduces:
            left = tuple(f for f in found if (f == "ep") == exchanges)
        axes[name] = left[0] if len(left) == 1 else ""
        if len(left) > 1:
            ambiguous[name] = left
    return axes, ambiguous


def _stages(rows: Rows, groups: Sequence[Group], axes: Mapping[str, str], job: Job | None) -> Longs:
    """Pipeline coordinates by the groups along pp, else as the plan lays ranks out."""
    found = np.array(coordinates(rows.ranks, groups, axes, "pp"), np.int64)
    if (found >= 0).any() or job is None or np.ndim(job.plan.pp):
        return found
    stages = int(job.plan.pp)
    world = max(job.cluster.num_gpus, 1)
    if stages < 2 or world % stages or max(rows.ranks) >= world:
        return found
    return np.array(rows.ranks, np.int64) // (world // stages)
