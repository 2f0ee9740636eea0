"""A world of any size in one process: a fake process group, and meshes on it (torch 2.13).

Collectives of the fake backend return at once and move nothing; under `FakeTensorMode` tensors have
shapes and no memory, so that a rank of a plan runs its training step on any machine.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import InferenceMode
from torch.testing._internal.distributed.fake_pg import FakeStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def fake_world(*, world_size: int, rank: int = 0) -> Iterator[None]:
    """Makes this process rank `rank` of a world whose other ranks do not exist.

    Every axis of a mesh gets a group of its own, even one that spans the world, so that its traffic
    can be told by the group's description `mesh_<axis>`.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        with ExitStack() as stack:
            for owner, name, new in _changes(rank):
                stack.enter_context(_replaced(owner, name, new))
            yield
    finally:
        dist.destroy_process_group()


def _changes(rank: int) -> Iterator[tuple[Any, str, Any]]:
    """What is replaced while the world is fake: where, which name, by what."""
    groups, joined = DeviceMesh._init_process_groups, DeviceMesh._concatenate
    yield DeviceMesh, "_init_process_groups", staticmethod(_apart(groups))
    yield DeviceMesh, "_concatenate", staticmethod(_on_real_tensors(joined))
    yield device_mesh, "new_group", _of_own_ranks(device_mesh.new_group, rank)
    yield _fsdp_param, "_chunk_with_empty", Chunks
    yield schedules._PipelineSchedule, "_warmup_p2p", _agreed


@contextmanager
def _replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    """`owner` has another attribute inside."""
    old = vars(owner)[name]
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def fake_tensors() -> Any:
    """The mode in which new tensors have shapes, dtypes and devices but no memory."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def _apart(original: Any) -> Any:
    """An axis as wide as the world would take the default group, unless given a backend."""

    def init_process_groups(
        layout: Any, rank_map: Any, names: Sequence[str] | None, backends: Sequence[Any]
    ) -> Any:
        named = tuple(("fake", options) for _, options in backends)
        return original(layout, rank_map, names, named)

    return init_process_groups


def _on_real_tensors(original: Any) -> Any:
    """FSDP over TP joins two meshes with a real tensor, which fake mode refuses."""

    def concatenate(*arguments: Any, **named: Any) -> Any:
        with unset_fake_temporarily():
            return original(*arguments, **named)

    return concatenate


def _of_own_ranks(original: Any, rank: int) -> Any:
    """Groups of other ranks are not created: a world of thousands has tens of thousands."""

    def new_group(ranks: Sequence[int], **named: Any) -> Any:
        return original(ranks=ranks, **named) if rank in ranks else None

    return new_group


def _agreed(_schedule: Any, stages: Sequence[Any], *_: Any) -> None:
    """Pipeline ranks vote on whether shapes are known, and read the result; alone we say yes."""
    for stage in stages:
        stage._inference_mode = InferenceMode.STATIC


class Chunks:
    """The parts that FSDP2 cuts a parameter into, made when asked for: it asks for two of them."""

    def __init__(self, tensor: Any, num_chunks: int, dim: int) -> None:
        self._tensor, self._dim = tensor, dim
        self._rows = -(-tensor.size(dim) // num_chunks)

    def __getitem__(self, index: int) -> Any:
        total = self._tensor.size(self._dim)
        start = self._rows * index
        if start >= total:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(self._rows, total - start))
