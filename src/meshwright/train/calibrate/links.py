"""Collectives among the ranks of this machine, and what FSDP2 makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from meshwright.train.calibrate.timing import Clock

SIZES = tuple(4**power for power in range(6, 13))  # bytes of the whole tensor, 4 KiB to 16 MiB
QUICK_SIZES = SIZES[::2]
UNITS = (2**12, 2**16, 2**19, 2**21, 2**22)  # parameters that FSDP2 gathers and reduces at once
QUICK_UNITS = UNITS[::2]
WIDTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Seconds of one collective over a whole tensor of so many bytes among `size` ranks."""

    kind: str
    size: int
    total_bytes: int
    seconds: float


def collectives(clock: Clock, *, quick: bool) -> list[Moved]:
    """Every collective in groups of 2, 4, ... all ranks; the ranks outside a group wait."""
    found = []
    world = dist.get_world_size()
    for size in sorted({2**p for p in range(1, 8) if 2**p < world} | {world}):
        group = dist.new_group(list(range(size)))
        if dist.get_rank() < size:
            inside = _Inside(clock, group)
            for total in QUICK_SIZES if quick else SIZES:
                found += [
                    Moved(kind=kind, size=size, total_bytes=total, seconds=inside.seconds(call))
                    for kind, call in _calls(group, size, total // WIDTH, clock.device).items()
                ]
        dist.barrier()
    return found


class _Inside:
    """A clock for a group that need not be the whole world."""

    def __init__(self, clock: Clock, group: dist.ProcessGroup) -> None:
        self.clock = clock
        self.group = group

    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds of one call: as many samples on every rank of the group."""
        import time

        wait = torch.get_device_module(self.clock.device).synchronize
        times = []
        for _ in range(4 * self.clock.samples):
            dist.barrier(group=self.group)
            begin = time.perf_counter()
            call()
            wait()
            times.append(time.perf_counter() - begin)
        return min(times)


def _calls(
    group: dist.ProcessGroup, size: int, elements: int, device: str
) -> dict[str, Callable[[], object]]:
    """The collectives over a tensor of `elements`."""
    whole = torch.ones(max(elements // size, 1) * size, device=device)
    part = whole[: len(whole) // size].clone()
    other = torch.empty_like(whole)
    return {
        "all_gather": lambda: dist.all_gather_single(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole, group=group),
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        "send": lambda: _pass_on(whole, other, group),
    }


def _pass_on(sent: Tensor, received: Tensor, group: dist.ProcessGroup) -> None:
    """Rank 0 sends to rank 1 as pipelines hand over."""
    rank = dist.get_rank(group)
    if rank > 1:
        return
    operation = (
        dist.P2POp(dist.isend, sent, 1, group=group)
        if rank == 0
        else dist.P2POp(dist.irecv, received, 0, group=group)
    )
    for work in dist.batch_isend_irecv([operation]):
        work.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Seconds that FSDP2 takes to gather and to reduce one unit of so many parameters."""

    parameters: int
    gather_s: float
    reduce_s: float


def units(clock: Clock, *, quick: bool, replicated: bool = False) -> list[Unit]:
    """One linear layer under FSDP2 over all ranks, from small to large.

    `replicated`: kept whole on every rank, so that gradients are all-reduced (ZeRO stage 0).
    """
    world = dist.get_world_size()
    shape, names = ((world, 1), ("replicate", "shard")) if replicated else ((world,), ("shard",))
    mesh = init_device_mesh(clock.device, shape, mesh_dim_names=names)
    return [_unit(clock, mesh, size) for size in (QUICK_UNITS if quick else UNITS)]


def _unit(clock: Clock, mesh: dist.DeviceMesh, parameters: int) -> Unit:
    width = int(parameters**0.5)
    plain = nn.Linear(width, width, bias=False, device=clock.device)
    sharded = nn.Linear(width, width, bias=False, device=clock.device)
    fully_shard(sharded, mesh=mesh, reshard_after_forward=False)
    x = torch.randn(1, width, device=clock.device)

    def gather() -> None:
        sharded.reshard()
        sharded.unshard()

    def through(layer: nn.Module) -> Callable[[], None]:
        def both() -> None:
            layer(x).sum().backward()
            layer.weight.grad = None

        return both

    gather_s = clock.seconds(gather)
    plain_s, sharded_s = clock.seconds(through(plain)), clock.seconds(through(sharded))
    reduce_s = max(sharded_s - plain_s - gather_s, 0.1 * gather_s)
    return Unit(parameters=width * width, gather_s=gather_s, reduce_s=reduce_s)
