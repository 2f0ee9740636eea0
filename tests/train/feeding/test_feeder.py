from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from meshwright.base.errors import MeshwrightError  # noqa: E402
from meshwright.data.loader.place import Place  # noqa: E402
from meshwright.train.feeding.feeder import Feeder  # noqa: E402
from meshwright.train.feeding.rows import Rows  # noqa: E402
from meshwright.train.feeding.synthetic import Synthetic  # noqa: E402

SIZE = 4


def source(*, seed=0, size=SIZE):
    table = Synthetic(seq_len=8, vocab_size=50, seed=seed)
    place = Place(global_batch_size=size, micro_batch_size=2)
    return Rows(table, place, cp_slices="zigzag")


def feeder(*, prefetch=2, end=None, size=SIZE, seed=0):
    made = source(seed=seed, size=size)
    device = torch.device("cpu")
    return Feeder(made, device=device, global_batch_size=size, prefetch=prefetch, end=end)


def taken(it, count):
    return [it.next() for _ in range(count)]


def tokens(fed):
    return torch.cat([batch["tokens"] for batch in fed.micro_batches])


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_steps_follow_each_other(prefetch):
    with feeder(prefetch=prefetch) as it:
        found = taken(it, 5)
    assert [(f.first_sample, f.last_sample) for f in found] == [
        (n * SIZE, (n + 1) * SIZE) for n in range(5)
    ]
    assert all(f.labels == SIZE * 8 for f in found)
    assert not any(thread.name.startswith("feeder") for thread in threading.enumerate())


def test_goes_on_where_another_stopped_whatever_the_batch():
    with feeder() as it:
        taken(it, 3)
        state = it.state()
        wanted = torch.cat([tokens(f) for f in taken(it, 2)])
    with feeder(size=8, prefetch=0) as other:
        other.restore(state)
        assert torch.equal(tokens(other.next()), wanted)


def test_what_was_made_ahead_does_not_count():
    with feeder(prefetch=3) as it:
        it.next()
        assert it.state()["consumed_samples"] == SIZE


def test_other_data_is_refused():
    with feeder() as it, feeder(seed=1) as other:
        with pytest.raises(MeshwrightError, match="other data: seed was 0 and is 1"):
            other.restore(it.state())
        with pytest.raises(MeshwrightError, match="says nothing of the data"):
            other.restore({})


def test_ends_where_it_is_told():
    with feeder(end=6) as it:
        taken(it, 2)
        assert it.is_over
        it.seek(0)
        assert not it.is_over


def test_an_error_of_the_thread_is_raised_by_next():
    broken = source()
    broken.make = lambda *_args, **_kwargs: 1 / 0
    it = Feeder(broken, device=torch.device("cpu"), global_batch_size=SIZE)
    with it, pytest.raises(ZeroDivisionError):
        it.next()
