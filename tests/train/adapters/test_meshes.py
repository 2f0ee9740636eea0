"""Forked ranks do not send to process groups of the process that they come from."""

from __future__ import annotations

import pytest

from meshwright.train.local import run_ranks

torch = pytest.importorskip("torch")


def _sum_of_parts() -> float:
    """A sum over both ranks, by DTensor on a mesh of two."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    parts = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
    return float((parts * 2).sum().full_tensor())


def test_what_a_mesh_of_the_parent_left_behind_is_forgotten() -> None:
    from meshwright.train.adapters.fake import fake_world

    with fake_world(rank=0, world_size=2):
        _sum_of_parts()
    assert run_ranks(_sum_of_parts, 2) == [12.0, 12.0]
