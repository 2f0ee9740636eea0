import itertools

import pytest

torch = pytest.importorskip("torch")

from meshwright.base.errors import MeshwrightError  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.model.share import boxes_of, part_of  # noqa: E402


def test_boxes_say_where_every_element_of_a_part_is_from():
    def run():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.placement_types import _StridedShard

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        kinds = (Replicate(), Shard(0), Shard(1), Shard(2))
        strided = (
            (_StridedShard(0, split_factor=2), Shard(0)),  # FSDP2 over tp
            (Replicate(), _StridedShard(1, split_factor=2)),  # gate and up over etp
            (Shard(0), _StridedShard(1, split_factor=3)),
        )
        boxes = 0
        for shape in ((4, 8, 2), (5, 12, 3), (1, 7, 9)):
            whole = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
            for placements in (*itertools.product(kinds, kinds), *strided):
                if placements in strided and any(n % 4 for n in shape[:2]):
                    continue  # torch cuts these evenly alone
                cut = distribute_tensor(whole, mesh, placements, src_data_rank=None)
                part = part_of(cut)
                seen = torch.zeros_like(part)
                for box in boxes_of(cut):
                    assert torch.equal(box.of(part), whole[box.whole]), (shape, placements)
                    box.of(seen).add_(1)
                    boxes += 1
                assert bool((seen == 1).all())
        return boxes

    assert all(count > 40 for count in run_ranks(run, 4))


@pytest.mark.parametrize("rows", [97, 98, 7, 5])
def test_parts_of_fsdp_over_tp_need_not_be_even(rows):
    def run():
        import torch.distributed as dist
        from torch import nn
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("fsdp", "tp"))
        module = nn.Linear(3, rows, bias=False)
        whole = torch.arange(3.0 * rows).reshape(rows, 3)
        with torch.no_grad():
            module.weight.copy_(whole)
        parallelize_module(module, mesh["tp"], ColwiseParallel(), src_data_rank=None)
        fully_shard(module, mesh=mesh["fsdp"])
        part = part_of(module.weight)
        for box in boxes_of(module.weight):
            assert torch.equal(box.of(part), whole[box.whole])
        held = torch.tensor(sum(box.of(part).numel() for box in boxes_of(module.weight)))
        dist.all_reduce(held)
        return int(held)

    assert set(run_ranks(run, 8)) == {3 * rows}


def test_partial_sums_have_no_boxes():
    def run():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial

        sums = DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (2,)), [Partial()])
        with pytest.raises(MeshwrightError, match="has no parts"):
            boxes_of(sums)

    run_ranks(run, 2)


def test_a_scalar_and_an_empty_tensor():
    (box,) = boxes_of(torch.tensor(3.0))
    assert (box.start, box.size) == ((), ())
    assert boxes_of(torch.empty(0, 3)) == ()
