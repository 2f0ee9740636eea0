import inspect

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch.distributed.tensor import Shard  # noqa: E402

from meshwright.train.adapters.placements import cut_dim, in_order, kept  # noqa: E402


def test_torch_still_has_strided_shards_as_they_are_read_here():
    # if this fails: read _StridedShard of the new torch, and mend adapters/placements.py
    from torch.distributed.tensor.placement_types import _StridedShard

    strided = _StridedShard(1, split_factor=2)
    assert (strided.dim, strided.split_factor) == (1, 2)
    assert "split_factor" in inspect.signature(_StridedShard.__init__).parameters
    assert cut_dim(strided, 3) == 1


def test_strides_take_of_every_group():
    from torch.distributed.tensor.placement_types import _StridedShard

    indices = np.arange(8)
    assert kept(indices, factor=2, parts=2, place=1).tolist() == [2, 3, 6, 7]
    assert kept(indices, factor=1, parts=3, place=2).tolist() == [6, 7]
    assert kept(np.arange(2), factor=1, parts=4, place=3).tolist() == []
    strided = _StridedShard(0, split_factor=2)
    assert in_order((strided, Shard(0)), (4, 2), 2) == [(1, 0, 1), (0, 0, 1)]  # FSDP2 over tp
    assert in_order((Shard(1), strided), (4, 2), 2) == [(0, 1, 1), (1, 0, 2)]  # gate and up
    assert in_order((strided, strided), (4, 2), 2) == [(0, 0, 2), (1, 0, 2)]  # both
