"""A world of many ranks in one process: torch's fake process group, of which this is rank 0."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def fake_world(ranks: int) -> Iterator[None]:
    """Within it torch.distributed has `ranks` ranks, and its collectives do nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    stated = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks)}
    try:
        with mock.patch.dict(os.environ, stated):
            yield
    finally:
        dist.destroy_process_group()


def stand_in(*names: str) -> None:
    """Modules that a framework imports and these comparisons do not use, where they are missing."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _Empty(name)


class _Empty(ModuleType):
    """A module that has every name, as a class without anything."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
        setattr(self, name, made)
        return made


def stage(index: int, count: int, degree: int) -> Any:
    """What a schedule asks of a stage."""
    return SimpleNamespace(
        stage_index=index,
        num_stages=count,
        group_size=degree,
        group_rank=0,
        group=None,
        device="cpu",
        has_backward=True,
        is_first=index == 0,
        is_last=index == count - 1,
        stage_index_to_group_rank={n: n % degree for n in range(count)},
        submod=SimpleNamespace(modules=list),
        dw_builder=None,
    )
