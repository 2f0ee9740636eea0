"""Slices of context-parallel ranks and merged cu_seqlens against Megatron's own."""

import numpy as np
import pytest

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore"),  # what Megatron warns of when imported without a GPU
]


@pytest.fixture(scope="module")
def megatron():
    import typing
    import warnings

    if not hasattr(typing, "override"):
        pytest.skip("megatron-core needs Python 3.12")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("megatron.core.utils")


@pytest.mark.parametrize("cp_size", [2, 4, 8])
def test_zigzag_is_megatrons(megatron, monkeypatch, cp_size):
    import torch

    from meshwright.data.loader.slices import fill_slice

    values = np.arange(3 * 64).reshape(3, 64)
    for rank in range(cp_size):
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: cp_size)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda group, rank=rank: rank)
        batch = {"tokens": torch.from_numpy(values), "cu_seqlens": None}
        theirs = megatron.get_batch_on_this_cp_rank(batch, False)["tokens"]
        ours = np.empty((3, 64 // cp_size), dtype=values.dtype)
        fill_slice(ours, values, cp_rank=rank, cp_size=cp_size, how="zigzag")
        assert ours.tolist() == theirs.tolist()


def test_cu_seqlens_are_merged_alike(megatron):
    import torch

    rows = torch.tensor([[0, 5, 12, 16], [0, 16, 16, 16], [0, 3, 16, 16]], dtype=torch.int32)
    merged = megatron._merge_cu_seqlens_across_micro_batch(rows, 16)
    assert merged.tolist() == [0, 5, 12, 16, 32, 35, 48]
