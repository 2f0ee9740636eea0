"""Memory is used again only when nobody can see it."""

import gc
import pickle

import numpy as np
import pytest

from meshwright.data.loader import Loader
from meshwright.data.loader.buffers import MOST, Buffers


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_comes_back_once_it_is_let_go():
    buffers = Buffers()
    first = buffers.empty((3, 4), "int64")
    assert first.shape == (3, 4)
    assert first.flags.writeable
    place = address(first)
    assert address(buffers.empty((3, 4), "int64")) != place
    del first
    assert address(buffers.empty((4, 3), "int64")) == place


@pytest.mark.parametrize("hold", [lambda a: a[1:], lambda a: a.view("u1"), lambda a: memoryview(a)])
def test_a_view_keeps_it(hold):
    buffers = Buffers()
    array = buffers.empty((10, 10), "int32")
    place, held = address(array), hold(array)
    del array
    gc.collect()
    assert address(buffers.empty((10, 10), "int32")) != place
    del held
    assert address(buffers.empty((10, 10), "int32")) == place


def test_a_tensor_keeps_it():
    torch = pytest.importorskip("torch")
    buffers = Buffers()
    array = buffers.empty((10,), "int64")
    place, tensor = address(array), torch.from_numpy(array)[2:]
    del array
    assert address(buffers.empty((10,), "int64")) != place
    del tensor
    assert address(buffers.empty((10,), "int64")) == place


def test_few_are_remembered():
    buffers = Buffers()
    held = [buffers.empty((number,), "u1") for number in range(1, 3 * MOST)]
    assert len(buffers._buffers) == MOST
    assert len({address(array) for array in held}) == len(held)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_that_are_kept_keep_their_content(folder, prefetch):
    options = {"global_batch_size": 8, "micro_batch_size": 2, "prefetch": prefetch, "epochs": 1}
    with Loader(folder, **options) as loader:
        kept, copies = [], []
        for batch in loader:
            micro = batch.micro_batches[1]
            kept.append(micro.labels[1:])
            copies.append(kept[-1].copy())
    for ours, copy in zip(kept, copies, strict=True):
        assert np.array_equal(ours, copy)


def test_an_assembly_is_pickled_without_them(folder):
    with Loader(folder, global_batch_size=4, prefetch=0) as loader:
        assembly = loader.assembly
        wanted = next(loader).micro_batches[0]
    again = pickle.loads(pickle.dumps(assembly))
    dealt = again.deal(0)
    assert np.array_equal(again.micro_batches(dealt.samples, dealt.rows)[0].tokens, wanted.tokens)
