"""The seeded permutation: a permutation, without memory, and as even as a shuffle."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.loader.order import key_of, permuted


def order_of(size, key):
    return permuted(np.arange(size), size=size, key=key)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_row_once(size, key):
    assert sorted(order_of(size, key).tolist()) == list(range(size))


@given(st.integers(1, 2**62), st.integers(0, 2**64 - 1), st.data())
def test_any_place_of_any_size_is_a_row(size, key, data):
    places = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20, unique=True))
    rows = permuted(np.array(places), size=size, key=key)
    assert ((rows >= 0) & (rows < size)).all()
    assert len(set(rows.tolist())) == len(places)


def test_a_place_does_not_depend_on_what_is_asked_with_it():
    whole = order_of(1000, 7)
    assert permuted(np.array([998, 3]), size=1000, key=7).tolist() == whole[[998, 3]].tolist()


def test_the_order_of_a_key_never_changes():
    assert permuted(np.arange(6), size=10**12, key=key_of(1, 2, 3)).tolist() == [
        105751920863,
        554261765627,
        226055044203,
        105637111320,
        196882593288,
        326557148433,
    ]


@pytest.mark.parametrize("size", [4, 5])
def test_all_permutations_of_few_rows_are_equally_likely(size):
    keys = 4_000
    seen = Counter(tuple(order_of(size, key_of(seed, 0, 0)).tolist()) for seed in range(keys))
    expected = keys / math.factorial(size)
    orders = itertools.permutations(range(size))
    assert _chi_square([seen[order] for order in orders], expected) < 4.5


def _chi_square(counts, expected):
    """In standard deviations from its mean."""
    freedom = len(counts) - 1
    chi = sum((count - expected) ** 2 / expected for count in counts)
    return (chi - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("size", [97, 1000, 65_537])
def test_where_rows_go_looks_random(size):
    """Mean displacement, neighbors, fixed points and spread are those of a random permutation."""
    fixed, neighbors, correlations, cells = 0, 0, [], np.zeros((8, 8))
    orders = 200 if size < 5000 else 20
    for epoch in range(orders):
        order = order_of(size, key_of(3, epoch, 0))
        fixed += int((order == np.arange(size)).sum())
        neighbors += int((np.diff(order) == 1).sum())
        correlations.append(np.corrcoef(order[:-1], order[1:])[0, 1] * math.sqrt(size))
        np.add.at(cells, (np.arange(size) * 8 // size, order * 8 // size), 1)
    assert abs(fixed / orders - 1) < 5 / math.sqrt(orders)  # Poisson of mean 1
    assert abs(neighbors / orders - 1) < 5 / math.sqrt(orders)
    assert abs(np.mean(correlations)) < 5 / math.sqrt(orders)
    assert 0.7 < np.std(correlations) < 1.4 or orders == 20
    assert np.abs(cells / cells.mean() - 1).max() < 6 / math.sqrt(cells.mean())


def test_epochs_have_nothing_in_common():
    first, second = order_of(10_000, key_of(0, 0, 0)), order_of(10_000, key_of(0, 1, 0))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    assert (first == second).sum() < 10


def test_keys_of_swapped_numbers_differ():
    assert len({key_of(1, 2, 3), key_of(2, 1, 3), key_of(3, 2, 1), key_of(1, 2), key_of(1)}) == 5
