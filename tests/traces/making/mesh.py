"""Ranks of the mesh and its process groups, numbered as PyTorch numbers them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from making.spec import Spec

AXES = ("tp", "cp", "dp", "pp")  # fastest first
MEGATRON = {
    "dp": "DATA_PARALLEL_GROUP_WITH_CP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
}
TITAN = {
    "dp": "mesh_dp_shard_cp",
    "cp": "mesh_cp",
    "tp": "mesh_tp",
    "pp": "mesh_pp",
    "ep": "mesh_ep",
}


@dataclass(frozen=True)
class ProcessGroup:
    """A group: `stream` is where its collectives run on the device."""

    name: str
    axis: str
    description: str
    ranks: tuple[int, ...]
    stream: int


def coordinates(spec: Spec, rank: int) -> dict[str, int]:
    """Where a rank stands on each axis; `dp` counts (cp, dp) together for gradients as "data"."""
    left, where = rank, {}
    for axis in AXES:
        left, where[axis] = divmod(left, getattr(spec, axis))
    where["data"] = where["cp"] + spec.cp * where["dp"]
    where["ep"] = where["data"] % spec.ep
    return where


@lru_cache(maxsize=64)
def groups(spec: Spec) -> tuple[ProcessGroup, ...]:
    """All groups of the job: the default group, then axis by axis."""
    made = [ProcessGroup("0", "world", "default_pg", tuple(range(spec.world_size)), 16)]
    for number, axis in enumerate(("dp", "cp", "tp", "pp", "ep")):
        if axis != "dp" and getattr(spec, axis) == 1:
            continue
        members: dict[tuple[int, ...], list[int]] = {}
        for rank in range(spec.world_size):
            members.setdefault(_apart(spec, rank, axis), []).append(rank)
        for ranks in members.values():
            described = {"megatron": MEGATRON, "torchtitan": TITAN}.get(spec.descriptions, {})
            made.append(
                ProcessGroup(
                    str(len(made)),
                    axis,
                    described.get(axis, "undefined"),
                    tuple(ranks),
                    20 + 4 * number,
                )
            )
    return tuple(made)


def _apart(spec: Spec, rank: int, axis: str) -> tuple[int, ...]:
    """What two ranks of one group have in common."""
    at = coordinates(spec, rank)
    if axis == "dp":
        return at["tp"], at["pp"]
    if axis == "ep":
        return at["tp"], at["pp"], at["data"] // spec.ep
    return tuple(at[other] for other in AXES if other != axis)


def groups_of(spec: Spec, rank: int) -> dict[str, ProcessGroup]:
    """The groups of a rank by axis."""
    return {g.axis: g for g in groups(spec) if rank in g.ranks}


def host_of(spec: Spec, rank: int) -> int:
    return rank // spec.ranks_per_host
