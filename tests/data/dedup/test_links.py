"""Buckets, components and groups against plain Python."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.dedup.links import (
    Buckets,
    buckets_of,
    columns_at_once,
    components,
    distinct,
    equal_rows,
    groups_of,
    joined,
    pairs_in,
    reordered,
)
from meshwright.data.documents import bounds_of

SETS = st.lists(st.sets(st.integers(0, 30), min_size=2, max_size=6), max_size=12)


def buckets(sets):
    members = [sorted(one) for one in sets]
    return Buckets(
        np.array([one for some in members for one in some], dtype=np.int64),
        bounds_of(np.array([len(some) for some in members], dtype=np.int64)),
    )


def as_sets(found):
    bounds = found.bounds.tolist()
    return [tuple(found.members[a:b].tolist()) for a, b in itertools.pairwise(bounds)]


def plain_buckets(rows, numbers):
    found = defaultdict(list)
    for row, number in zip(rows, numbers, strict=True):
        found[tuple(row)].append(number)
    return sorted(tuple(sorted(some)) for some in found.values() if len(some) > 1)


ROWS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 2)), max_size=30
)


@given(ROWS, st.randoms(use_true_random=False))
def test_equal_rows_are_found_whatever_their_order(rows, random):
    numbers = list(range(len(rows)))
    random.shuffle(numbers)
    keys = np.array(rows, dtype=np.uint64).reshape(-1, 2)
    found = as_sets(equal_rows(keys, np.array(numbers, dtype=np.int64)))
    assert sorted(found) == plain_buckets(rows, numbers)


@given(ROWS, st.integers(1, 2000), st.integers(1, 7))
def test_neither_memory_nor_portions_change_the_buckets(rows, memory_bytes, portion):
    keys = np.array(rows, dtype=np.uint64).reshape(-1, 2) * np.uint64(0x9E3779B97F4A7C15)
    numbers = np.arange(len(rows))

    def portions():
        for first in range(0, len(rows), portion):
            yield numbers[first : first + portion], keys[first : first + portion]

    parts = buckets_of(portions, rows=len(rows), memory_bytes=memory_bytes)
    assert sorted(one for part in parts for one in as_sets(part)) == plain_buckets(rows, numbers)


def test_what_is_sorted_at_once_stays_within_the_memory(monkeypatch):
    keys = np.random.default_rng(0).integers(0, 2**64, (10_000, 1), dtype=np.uint64)
    sizes = []
    monkeypatch.setattr(
        "meshwright.data.dedup.links.equal_rows",
        lambda some, _: sizes.append(len(some)) or buckets([]),
    )
    portion = (np.arange(10_000), keys)
    list(buckets_of(lambda: [portion], rows=10_000, memory_bytes=100_000))
    assert sum(sizes) == 10_000
    assert max(sizes) * 48 < 1.2 * 100_000


@pytest.mark.parametrize(("memory", "expected"), [(1, 1), (48 * 100 * 3, 3), (1 << 30, 20)])
def test_columns_sorted_together(memory, expected):
    assert columns_at_once(documents=100, columns=20, memory_bytes=memory) == expected


@given(st.lists(SETS, max_size=4))
def test_each_set_once_in_an_order_of_its_own(parts):
    found = as_sets(distinct(buckets(some) for some in parts))
    everything = {tuple(sorted(one)) for some in parts for one in some}
    assert len(found) == len(everything)
    assert set(found) == everything
    flat = [one for some in parts for one in some]
    assert found == as_sets(distinct(iter([buckets(flat[::-1])])))


@given(SETS)
def test_components_are_those_of_a_search(sets):
    neighbors = defaultdict(set)
    for one in sets:
        for member in one:
            neighbors[member] |= one
    expected = list(range(31))
    for root in range(31):
        front = [root] if expected[root] == root else []
        while front:
            member = front.pop()
            expected[member] = root
            front += [one for one in neighbors[member] if expected[one] > root]
    assert components(buckets(sets), 31).tolist() == expected


def test_a_long_chain_is_one_component():
    order = np.random.default_rng(1).permutation(5000)
    links = [sorted(pair) for pair in zip(order.tolist(), order[1:].tolist(), strict=False)]
    assert not components(buckets(links), 5000).any()


def test_groups_fill_up_with_whole_components():
    labels = np.array([0, 1, 0, 3, 1, 5])
    group = groups_of(labels, np.array([4, 1, 4, 9, 1, 2]), target=10)
    assert group.tolist() == [0, 0, 0, 1, 0, 1]


@given(SETS, st.integers(2, 5))
def test_pairs_of_small_buckets_each_once(sets, largest):
    pairs, large = pairs_in(buckets(sets), largest=largest)
    expected = {(a, b) for one in sets if len(one) <= largest for a in one for b in one if a < b}
    assert [tuple(pair) for pair in pairs.tolist()] == sorted(expected)
    assert as_sets(large) == [tuple(sorted(one)) for one in sets if len(one) > largest]
    assert as_sets(joined(pairs, large)) == [*sorted(expected), *as_sets(large)]


@given(SETS, st.randoms(use_true_random=False))
def test_another_order(sets, random):
    order = list(range(len(sets)))
    random.shuffle(order)
    found = reordered(buckets(sets), np.array(order, dtype=np.int64))
    assert as_sets(found) == [as_sets(buckets(sets))[place] for place in order]
