"""Degrees of the mesh as accelerate's ParallelismConfig and DeepSpeed count them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

_AXES = ("tp", "pp", "cp", "ep", "ulysses", "dp_replicate")
_ROTATIONS = {"allgather": "all-gather", "alltoall": "ring"}


def give_context(m: Meanings) -> None:
    """Ring context parallelism or Ulysses, as the plan's one degree and its kind.

    `ring_cp` is the degree of context parallelism in accelerate's sense, `ulysses` that of its
    sequence parallelism; a configuration that states both is refused by a rule of its own.
    """
    ring, ulysses = m.count("cp"), m.count("ulysses")
    if m.value("cp") is not None:
        m.follow("ring_cp", ring, "cp")
    if ulysses > 1:
        m.follow("context_parallel", "ulysses", "ulysses")
        m.follow("cp", max(ring, ulysses), "cp", "ulysses")
    elif ring > 1:
        kind = _ROTATIONS.get(str(m.value("cp_comm_strategy", "allgather")), "all-gather")
        m.follow("context_parallel", kind, "cp", "cp_comm_strategy")


def give_shards(m: Meanings) -> None:
    """A shard degree of -1 fills the world, and is not a degree; nor is a mesh of ones."""
    if m.value("dp_shard") == 1 and all(m.count(axis) == 1 for axis in _AXES):
        m.follow("dp_shard", None, "dp_shard")
    if m.value("dp_shard") == -1:
        m.follow("dp_shard_auto", True, "dp_shard")
        world = m.value("num_gpus")
        others = m.count("tp") * m.count("pp") * m.count("cp") * m.count("dp_replicate")
        if isinstance(world, int) and world % others == 0:
            m.follow("dp_shard", world // others, "dp_shard")
        else:
            m.follow("dp_shard", None, "dp_shard")


def give_plain(m: Meanings) -> None:
    """What no program of this family does: parallel vocabulary, sequence parallelism on tp."""
    for variable in ("sequence_parallel", "loss_parallel", "vocab_parallel"):
        if m.value(variable) is None:
            m.follow(variable, False)
