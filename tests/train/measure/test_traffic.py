"""What the traffic tracker counts of each collective, on a fake group and on gloo."""

# ruff: noqa: E402 - torch is asked for before it is imported

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from meshwright.train.adapters import collectives
from meshwright.train.adapters.fake import fake_tensors, fake_world
from meshwright.train.local import run_ranks
from meshwright.train.measure.traffic import Flow, Lane, TrafficTracker, by_axis

SIZE = 4  # ranks


@pytest.fixture(name="group")
def _group():
    with fake_world(world_size=SIZE):
        yield init_device_mesh("cpu", (SIZE,), mesh_dim_names=("tp",)).get_group()


def flow(tracker, kind):
    return by_axis(tracker.flows)["tp", kind]


def test_each_collective_counts_the_whole_tensor(group):
    part, whole = torch.ones(10), torch.ones(10 * SIZE)
    with TrafficTracker() as tracker:
        dist.all_gather_single(whole, part, group=group)
        dist.reduce_scatter_single(part, whole, group=group)
        dist.all_reduce(part, group=group)
        dist.all_to_all_single(torch.empty_like(whole), whole, group=group)
        dist.broadcast(part, 0, group=group)
        dist.isend(part, 1, group=group)
    counted = {kind: value for (_, kind), value in by_axis(tracker.flows).items()}
    assert counted == {
        "all_gather": Flow(calls=1, bytes=160),
        "reduce_scatter": Flow(calls=1, bytes=160),
        "all_reduce": Flow(calls=1, bytes=40),
        "all_to_all": Flow(calls=1, bytes=160),
        "broadcast": Flow(calls=1, bytes=40),
        "send": Flow(calls=1, bytes=40),
    }


def test_functional_collectives_count_the_same(group):
    part = torch.ones(SIZE)
    with TrafficTracker() as tracker:
        functional.all_gather_single(part, 0, group)
        functional.reduce_scatter_single(part, "sum", 0, group)
        functional.all_reduce(part, "sum", group)
        functional.all_to_all_single(part, None, None, group)
    assert flow(tracker, "all_gather") == Flow(calls=1, bytes=4 * SIZE * SIZE)
    assert flow(tracker, "reduce_scatter") == Flow(calls=1, bytes=4 * SIZE)
    assert flow(tracker, "all_reduce") == Flow(calls=1, bytes=4 * SIZE)
    assert flow(tracker, "all_to_all") == Flow(calls=1, bytes=4 * SIZE)


def test_differentiable_collectives_count_once_forward_and_once_backward(group):
    part = torch.ones(SIZE, requires_grad=True)
    with TrafficTracker() as tracker:
        sent = functional.all_to_all_single_autograd(part, [1] * SIZE, [1] * SIZE, group)
        assert flow(tracker, "all_to_all").calls == 1
        sent.sum().backward()
    assert flow(tracker, "all_to_all") == Flow(calls=2, bytes=2 * 4 * SIZE)


def test_a_dtensor_that_is_gathered_counts(group):
    mesh = init_device_mesh("cpu", (SIZE,), mesh_dim_names=("tp",))
    with TrafficTracker() as tracker:
        cut = distribute_tensor(torch.ones(2 * SIZE, 3), mesh, [Shard(0)])
        tracker.flows.clear()
        cut.redistribute(mesh, [Replicate()]).to_local()
    assert flow(tracker, "all_gather") == Flow(calls=1, bytes=4 * 2 * SIZE * 3)


def test_fake_tensors_count_as_real_ones(group):
    with fake_tensors(), TrafficTracker() as tracker:
        functional.all_gather_single(torch.ones(3), 0, group)
    assert flow(tracker, "all_gather").bytes == 3 * 4 * SIZE


def test_phases_are_kept_apart(group):
    with TrafficTracker() as tracker:
        for tracker.phase in ("forward", "backward", "backward"):
            dist.all_reduce(torch.ones(1), group=group)
    lanes = {lane: value.calls for lane, value in tracker.flows.items()}
    assert lanes == {
        Lane(phase="forward", axis="tp", collective="all_reduce"): 1,
        Lane(phase="backward", axis="tp", collective="all_reduce"): 2,
    }


def test_a_group_of_one_rank_moves_nothing():
    with fake_world(world_size=SIZE):
        mesh = init_device_mesh("cpu", (SIZE, 1), mesh_dim_names=("dp", "tp"))
        with TrafficTracker() as tracker:
            dist.all_reduce(torch.ones(1), group=mesh["tp"].get_group())
            dist.barrier()
    assert tracker.flows == {}


def test_an_unknown_collective_is_not_taken_for_silence(group, monkeypatch):
    known = {k: v for k, v in collectives.KINDS.items() if k != "allreduce_"}
    monkeypatch.setattr(collectives, "KINDS", known)
    with TrafficTracker(), pytest.raises(KeyError, match="allreduce_"):
        dist.all_reduce(torch.ones(1), group=group)


def test_every_collective_of_this_torch_is_known():
    """A new operator of torch must be told what it counts as."""
    ours = {*collectives.KINDS, *collectives.SILENT, "batch_p2p_ops"}
    schemas = (s.name.split("::") for s in torch._C._jit_get_all_schemas())
    there = {name for space, name in schemas if space in collectives.NAMESPACES}
    assert there - ours == set()


def counted_on_gloo():
    with TrafficTracker() as tracker:
        dist.all_reduce(torch.ones(5))
        whole = torch.empty(2 * 5)
        dist.all_gather_single(whole, torch.ones(5))
        if dist.get_rank() == 0:
            dist.send(torch.ones(7), 1)
        else:
            dist.recv(torch.ones(7), 0)
    return {lane.collective: (v.calls, v.bytes) for lane, v in tracker.flows.items()}


def test_real_ranks_count_as_a_fake_one():
    first, second = run_ranks(counted_on_gloo, 2)
    common = {"all_reduce": (1, 20), "all_gather": (1, 40)}
    assert first == common | {"send": (1, 28)}
    assert second == common | {"receive": (1, 28)}
