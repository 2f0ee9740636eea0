"""Which axis of a plan a process group runs along.

By its description where the framework gives one, else by its members, which are those of one axis
of the plan's rank layout. Groups of one axis that is cut two ways (dp and ep over the same ranks)
have the same members: these are told as ambiguous, never guessed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.plan.degrees import degrees_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Group
    from meshwright.plan.degrees import Degrees
    from meshwright.plan.job import Job

# Megatron-LM core 0.9 to 0.15, megatron/core/parallel_state.py: `group_desc` of each new group.
MEGATRON = {
    "tensor_model_parallel_group": "tp",
    "pipeline_model_parallel_group": "pp",
    "context_parallel_group": "cp",
    "hierarchical_context_parallel_groups": "cp",
    "data_parallel_group": "dp",
    "data_parallel_group_with_cp": "dp",
    "data_parallel_group_gloo": "dp",
    "data_parallel_group_with_cp_gloo": "dp",
    "intra_partial_data_parallel_group_with_cp": "dp",
    "intra_partial_data_parallel_group_with_cp_gloo": "dp",
    "inter_partial_data_parallel_group_with_cp": "dp_replicate",
    "intra_distributed_optimizer_instance_group": "dp",
    "inter_distributed_optimizer_instance_group": "dp_replicate",
    "expert_model_parallel_group": "ep",
    "expert_tensor_parallel_group": "etp",
    "expert_tensor_and_model_parallel_group": "ep",
    "expert_data_parallel_group": "edp",
    "expert_data_parallel_group_gloo": "edp",
    "intra_partial_expert_data_parallel_group": "edp",
    "inter_partial_expert_data_parallel_group": "edp",
    "embedding_group": "embedding",
    "position_embedding_group": "embedding",
    "model_parallel_group": "tp_pp",
    "expert_tensor_model_pipeline_parallel_group": "ep_pp",
    "tensor_and_data_parallel_group": "tp_dp",
    "tensor_and_data_parallel_group_with_cp": "tp_dp",
    "tensor_and_context_parallel_group": "tp_cp",
}
# torchtitan (parallel_dims.py), meshwright's own meshes (train/mesh.py), and FSDP's in PyTorch;
# DeviceMesh writes "mesh_" before the name of a dimension.
MESHES = {
    **dict.fromkeys(("tp", "tensor", "tensor_parallel"), "tp"),
    **dict.fromkeys(("pp", "pipe", "pipeline"), "pp"),
    **dict.fromkeys(("cp", "context", "sp"), "cp"),
    **dict.fromkeys(("ep", "expert"), "ep"),
    **dict.fromkeys(("etp", "ep_etp"), "etp"),
    **dict.fromkeys(("dp", "data", "dp_cp", "batch", "ddp", "loss"), "dp"),
    **dict.fromkeys(("dp_shard", "dp_shard_cp", "fsdp", "shard"), "dp_shard"),
    **dict.fromkeys(("dp_replicate", "replicate"), "dp_replicate"),
    **dict.fromkeys(("efsdp", "edp", "dp_mod_ep", "dp_shard_mod_ep"), "edp"),
}
# Slowest dimension first. The first is that of this project, torchtitan and Megatron
# (tp-cp-ep-dp-pp, from the fastest); the second Megatron's --use-tp-pp-dp-mapping.
DENSE = (
    ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
    ("dp_replicate", "dp_shard", "pp", "cp", "tp"),
)
EXPERT = (
    ("pp", "dp_replicate", "efsdp", "ep", "etp"),
    ("dp_replicate", "efsdp", "ep", "pp", "etp"),
)
COMBINED = {
    ("cp", "dp_shard"): "dp_shard",
    ("dp_replicate", "dp_shard"): "dp",
    ("cp", "dp_replicate", "dp_shard"): "dp",
    ("cp", "dp_replicate"): "dp",
    ("cp", "tp"): "tp_cp",
    ("pp", "tp"): "tp_pp",
    ("dp_replicate", "efsdp"): "edp",
    ("ep", "etp"): "ep",
}


def group_axes(
    groups: Iterable[Group], *, job: Job | None, world_size: int | None
) -> Mapping[str, str]:
    """The axis of each process group by name; "" where it cannot be told.

    Axes: tp, cp, pp, ep, etp, dp (dp_shard and dp_replicate where gradients are sharded in one and
    replicated in the other, or the description says so), edp (data-parallel ranks of an expert),
    world, and tp_cp, tp_dp, tp_pp, embedding for groups that serve several.
    """
    return {
        name: found[0] if len(found) == 1 else ""
        for name, found in axis_choices(groups, job=job, world_size=world_size).items()
    }


def axis_choices(
    groups: Iterable[Group], *, job: Job | None, world_size: int | None
) -> Mapping[str, tuple[str, ...]]:
    """The axes that each group could be: one, none, or several of equal members."""
    by_name: dict[str, Group] = {}
    for group in groups:
        by_name.setdefault(group.name, group)
    known = {name: described(group.description) for name, group in by_name.items()}
    layout = _layout(tuple(by_name.values()), known, job, world_size)
    found = {
        name: (known[name],) if known[name] else layout.get(_members(group, world_size), ())
        for name, group in by_name.items()
    }
    if any(known.values()):  # a framework that describes its axes leaves the default group for all
        found |= {
            name: ("world",)
            for name, group in by_name.items()
            if group.description == "default_pg" and not found[name]
        }
    return found


def described(description: str) -> str:
    """The axis that a group's description names; "" where it names none."""
    word = description.strip().lower().replace(" ", "_").replace("-", "_")
    bare = word.removeprefix("mesh_").removeprefix("dim_")
    return MEGATRON.get(word) or MESHES.get(bare, "")


def with_axes(rank: Rank, axes: Mapping[str, str]) -> Rank:
    """The rank with the axis of each collective filled in."""
    return replace(
        rank,
        collectives=tuple(
            replace(c, axis=axes.get(c.pg_name, "") or c.axis) for c in rank.collectives
        ),
    )


def _members(group: Group, world_size: int | None) -> tuple[int, ...]:
    if group.ranks:
        return tuple(sorted(group.ranks))
    return tuple(range(world_size)) if world_size and group.size == world_size else ()


def _layout(
    groups: Sequence[Group],
    known: Mapping[str, str],
    job: Job | None,
    world_size: int | None,
) -> Mapping[tuple[int, ...], tuple[str, ...]]:
    """Axes by members, in the layout that explains most groups and contradicts no description."""
    degrees = _degrees(job)
    if degrees is None or (world_size is not None and world_size != degrees.world_size):
        return {}
    shards = job is not None and int(job.plan.zero_stage) == 3
    experts = degrees.ep > 1 or (job is not None and _has_experts(job))
    layouts = [
        members_of_axes(degrees, i, shards=shards, experts=experts) for i in range(len(DENSE))
    ]

    def explained(layout: Mapping[tuple[int, ...], tuple[str, ...]]) -> int:
        found = [layout.get(_members(g, world_size), ()) for g in groups]
        agree = sum(known[g.name] in f for g, f in zip(groups, found, strict=True))
        return 2 * agree + sum(map(bool, found))

    return max(layouts, key=explained)


def _degrees(job: Job | None) -> Degrees | None:
    if job is None:
        return None
    try:
        return degrees_of(job.plan)
    except (MeshwrightError, TypeError, ValueError):  # a plan that cannot be laid out, or a column
        return None


def _has_experts(job: Job) -> bool:
    from meshwright.model.architecture import Experts

    return any(isinstance(block.feed_forward, Experts) for block in job.model.kinds)


def members_of_axes(
    degrees: Degrees, order: int, *, shards: bool, experts: bool
) -> Mapping[tuple[int, ...], tuple[str, ...]]:
    """The axes of every set of ranks that some axes of the plan span; `order` is a layout."""
    found: dict[tuple[int, ...], list[str]] = {}
    for axes in (DENSE[order], EXPERT[order]) if experts else (DENSE[order],):
        sizes = degrees.of(axes)
        ranks = np.arange(prod(sizes)).reshape(sizes)
        wide = [i for i, size in enumerate(sizes) if size > 1]
        for count in range(1, len(wide) + 1):
            for chosen in combinations(wide, count):
                name = _name(tuple(sorted(axes[i] for i in chosen)), degrees, shards=shards)
                whole = count == len(wide) and count > 1
                for members in _lines(ranks, chosen):
                    names = found.setdefault(members, [])
                    if (name or whole) and (name or "world") not in names:
                        names.append(name or "world")
    return {members: _distinct(names) for members, names in found.items() if names}


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Without the experts' word for ranks that are the dense layers' line of the same kind."""
    same = {"etp": ("tp",), "edp": ("dp", "dp_shard", "dp_replicate")}
    return tuple(n for n in names if not set(same.get(n, ())) & set(names))


def _lines(ranks: Any, dims: Sequence[int]) -> Iterator[tuple[int, ...]]:
    rest = [i for i in range(ranks.ndim) if i not in dims]
    lines = ranks.transpose([*rest, *dims]).reshape(-1, prod(ranks.shape[i] for i in dims))
    return (tuple(sorted(line)) for line in lines.tolist())


def _name(axes: tuple[str, ...], degrees: Degrees, *, shards: bool) -> str:
    """One word for the axes that a group spans; "" for a group of no use."""
    word = axes[0] if len(axes) == 1 else COMBINED.get(axes, "")
    if word == "efsdp":
        return "edp"
    hybrid = degrees.dp_replicate > 1 and degrees.dp_shard > 1
    if word in ("dp_shard", "dp_replicate") and not hybrid:
        return "dp_shard" if shards and degrees.dp_replicate == 1 else "dp"
    if not word and "tp" in axes and set(axes) <= {"tp", "cp", "dp_replicate", "dp_shard"}:
        return "tp_dp"
    return word


def coordinates(
    ranks: Sequence[int], groups: Iterable[Group], axes: Mapping[str, str], axis: str
) -> tuple[int, ...]:
    """The place of each rank in its group along an axis; -1 for ranks without such a group."""
    place: dict[int, int] = {}
    for group in groups:
        if axes.get(group.name) == axis:
            for index, member in enumerate(group.ranks):
                place.setdefault(member, index)
    return tuple(place.get(rank, -1) for rank in ranks)
