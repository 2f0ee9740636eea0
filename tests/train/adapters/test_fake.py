"""The interfaces of torch that `adapters/fake.py` relies on, and what it makes of them."""

# ruff: noqa: E402 - torch is asked for before it is imported

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from meshwright.plan.plan import Plan
from meshwright.train.adapters.fake import fake_tensors, fake_world
from meshwright.train.mesh import Mesh


def test_the_private_names_are_where_torch_2_13_has_them():
    assert callable(DeviceMesh._init_process_groups)
    assert callable(DeviceMesh._concatenate)
    assert callable(device_mesh.new_group)


def test_every_axis_has_a_group_of_its_own_even_where_it_spans_the_world():
    with fake_world(world_size=8, rank=3):
        mesh = Mesh(Plan(dp=8, zero_stage=3), device_type="cpu")
        assert mesh.group("fsdp").group_desc == "mesh_fsdp"
        assert mesh.group("batch").group_desc == "mesh_batch"
        assert mesh.group("tp").size() == 1
        assert mesh.rank("fsdp") == 3


def test_what_was_patched_is_put_back():
    before = (DeviceMesh._init_process_groups, DeviceMesh._concatenate, device_mesh.new_group)
    with fake_world(world_size=4):
        assert device_mesh.new_group is not before[2]
    after = (DeviceMesh._init_process_groups, DeviceMesh._concatenate, device_mesh.new_group)
    assert after == before
    assert not dist.is_initialized()


def test_it_is_put_back_after_an_error_too():
    before = DeviceMesh._concatenate
    with pytest.raises(ZeroDivisionError), fake_world(world_size=4):
        raise ZeroDivisionError
    assert DeviceMesh._concatenate is before


def test_meshes_are_joined_under_fake_tensors():
    """FSDP over TP does so, and torch 2.13 refuses it without the patch."""
    with fake_world(world_size=4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with fake_tensors():
            joined = DeviceMesh._concatenate([mesh["dp"], mesh["tp"]])
    assert joined.mesh_dim_names == ("dp", "tp")


def test_thousands_of_ranks_cost_no_more_than_a_few(cpu_s):
    def meshes(dp):
        with fake_world(world_size=8 * dp * 8, rank=1):
            mesh = Mesh(Plan(pp=8, dp=dp, tp=8, ep=8, zero_stage=3), device_type="cpu")
            mesh.batch, mesh.expert, mesh.sequence  # noqa: B018 - made when first asked for

    assert cpu_s(lambda: meshes(64)) < 1.0  # 0.06 where nothing else runs
