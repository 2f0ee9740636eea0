"""Seeded orders: permutations, the same for ever, and different for different purposes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.shuffle import shuffle, shuffled


def test_the_order_is_the_same_for_ever() -> None:
    assert shuffled(10, seed=0, purpose="rows").tolist() == GOLDEN
    assert shuffled(10, seed=2**64, purpose="rows").tolist() == GOLDEN


GOLDEN = [5, 7, 4, 0, 8, 3, 6, 1, 2, 9]


@given(st.integers(0, 3000), st.integers(-(2**63), 2**63), st.integers(0, 2**31))
def test_every_number_once(count: int, seed: int, number: int) -> None:
    found = shuffled(count, seed=seed, purpose="train", number=number)
    assert sorted(found.tolist()) == list(range(count))


def test_other_seeds_purposes_and_numbers_give_other_orders() -> None:
    orders = {
        tuple(shuffled(50, seed=seed, purpose=purpose, number=number).tolist())
        for seed in (0, 1)
        for purpose in ("train", "valid")
        for number in (0, 1)
    }
    assert len(orders) == 8


@given(st.lists(st.integers(0, 2**40), max_size=50))
def test_repeated_items_stay(items: list[int]) -> None:
    found = shuffle(np.array(items, dtype=np.int64), seed=3, purpose="train")
    assert sorted(found.tolist()) == sorted(items)


def test_every_place_is_as_likely() -> None:
    firsts = [int(shuffled(4, seed=seed, purpose="rows")[0]) for seed in range(4000)]
    counts = np.bincount(firsts, minlength=4)
    assert abs(counts - 1000).max() < 150  # 5 sigma
