"""A network of two layers, sharded over all ranks: all that tests of saving itself need."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from meshwright.data.shards.hashed import HashedFile
from meshwright.train.checkpoint import Every, Saver, restore, state_of
from meshwright.train.local import run_ranks

EVERY = Every(steps=1)


def net(seed: int = 0, *, width: int = 8) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(width, 2 * width), nn.Linear(2 * width, 3))
    module.register_buffer("counted", torch.arange(3.0))
    module.register_buffer("scratch", torch.ones(2), persistent=False)
    if dist.get_world_size() > 1:
        fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return module


def adam(module: nn.Module, **options: Any) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(module.parameters(), lr=0.1, **options)]


def step(module: nn.Module, optimizers: list[Any], *, times: int = 1) -> None:
    for _ in range(times):
        module(torch.ones(4, next(iter(module.parameters())).shape[1])).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def numbers(module: nn.Module) -> list[float]:
    from checkpointing import whole

    return [float(whole(p).double().sum()) for p in (*module.parameters(), *module.buffers())]


def write(folder: Path, *, ranks: int = 1, steps: tuple[int, ...] = (1,), keep: int = 9) -> list:
    """Checkpoints of a run at `steps`; what the net was at each."""

    def run() -> list[list[float]]:
        module = net()
        optimizers = adam(module)
        saver = Saver(folder, every=EVERY, keep=keep)
        seen = []
        for number in steps:
            step(module, optimizers)
            seen.append(numbers(module))
            saver.save(state_of([module], optimizers), number, {"step": number})
        saver.close()
        return seen

    return run_ranks(run, ranks)[0]


def read(folder: Path, *, ranks: int = 1) -> list[float]:
    """The net from one checkpoint."""

    def run() -> list[float]:
        module = net(seed=5)
        restore(folder, [module], adam(module))
        return numbers(module)

    return run_ranks(run, ranks)[0]


def full_disk(after_bytes: int = 0) -> Any:
    """Files cannot grow beyond a size, as on a disk that is full."""
    write_part = HashedFile.write

    def refuse(self: HashedFile, part: Any) -> int:
        if self.bytes + memoryview(part).nbytes > after_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_part(self, part)

    return mock.patch.object(HashedFile, "write", refuse)
