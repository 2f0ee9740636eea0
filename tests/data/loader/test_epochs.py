"""Epochs over few and over many shards."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.loader.epochs import WINDOW, Epochs, rows_at

sizes = st.lists(st.integers(0, 40), min_size=1, max_size=5 * WINDOW).filter(any)


@given(sizes, st.integers(0, 2**32), st.integers(0, 3))
def test_an_epoch_has_every_row_once(rows, seed, epoch):
    epochs = Epochs(rows=tuple(rows), seed=seed)
    numbers = np.arange(epochs.size) + epoch * epochs.size
    assert sorted(rows_at(numbers, epochs).tolist()) == list(range(epochs.size))


@given(sizes, st.data())
def test_any_numbers_in_any_company(rows, data):
    epochs = Epochs(rows=tuple(rows), seed=1)
    whole = rows_at(np.arange(3 * epochs.size), epochs)
    asked = data.draw(st.lists(st.integers(0, 3 * epochs.size - 1), min_size=1, max_size=30))
    assert rows_at(np.array(asked), epochs).tolist() == whole[asked].tolist()


def test_many_shards_are_open_by_windows():
    epochs = Epochs(rows=(10,) * (4 * WINDOW), seed=0)
    shards = rows_at(np.arange(epochs.size), epochs) // 10
    for window in shards.reshape(4, -1):
        assert len(set(window.tolist())) == WINDOW
        assert len(set(window[: 2 * WINDOW].tolist())) > WINDOW // 2  # mixed, not one by one


def test_epochs_and_sources_differ_and_files_stay_in_order_without_shuffle():
    epochs = Epochs(rows=(50, 50), seed=0)
    first, second = rows_at(np.arange(200), epochs).reshape(2, -1).tolist()
    other = rows_at(np.arange(100), Epochs(rows=(50, 50), seed=0, source=1)).tolist()
    assert first != second != other != first
    plain = rows_at(np.arange(150), Epochs(rows=(50, 50), seed=0, shuffle=False))
    assert plain.tolist() == [*range(100), *range(50)]
