"""Which source comes when: shares held at every prefix, and known without what came before."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.interleave import (
    FINEST,
    counts_of,
    deviation,
    interleaved,
    parts_of,
    tree_of,
)

weights = st.lists(
    st.one_of(st.floats(1e-6, 1e6), st.integers(1, 10).map(float)), min_size=1, max_size=12
)


@given(weights)
def test_no_source_is_ever_far_from_its_share(given_weights):
    parts = parts_of(given_weights)
    tree = tree_of(parts)
    sources, numbers = interleaved(np.arange(2000), tree)
    after = np.arange(1, 2001)
    for source, part in enumerate(parts):
        counted = np.cumsum(sources == source)
        assert np.abs(counted - after * (part / sum(parts))).max() <= deviation(tree) + 1e-6
        assert numbers[sources == source].tolist() == list(range(counted[-1]))
        assert counts_of(1234, tree)[source] == counted[1233]


@given(weights, st.lists(st.integers(0, 2**50), min_size=1, max_size=20))
def test_any_sample_is_found_alone(given_weights, samples):
    tree = tree_of(parts_of(given_weights))
    together = interleaved(np.array(samples), tree)
    for place, sample in enumerate(samples):
        source, number = interleaved(np.array([sample]), tree)
        assert (source[0], number[0]) == (together[0][place], together[1][place])
        assert number[0] == counts_of(sample, tree)[int(source[0])]
        assert counts_of(sample + 1, tree)[int(source[0])] == number[0] + 1


@given(weights)
def test_the_bound_that_is_promised(given_weights):
    parts = parts_of(given_weights)
    limit = {1: 0.0, 2: 0.5, 3: 1.0}.get(len(parts), 1.69)
    assert deviation(tree_of(parts)) <= limit


def test_weights_are_taken_as_written():
    assert parts_of([0.7, 0.3]) == (7, 3)
    assert parts_of([0.1, 0.2, 0.7]) == (1, 2, 7)
    assert parts_of([1e6, 2e6]) == (1, 2)


def test_weights_that_need_too_many_parts_are_rounded():
    parts = parts_of([1 / 3, 2 / 3, 1e-30])
    assert sum(parts) == FINEST
    assert parts[2] == 1
    assert abs(parts[0] / FINEST - 1 / 3) < 2 / FINEST


def test_seven_to_three():
    sources, _ = interleaved(np.arange(10), tree_of(parts_of([0.7, 0.3])))
    assert sources.tolist().count(0) == 7
    assert "11" not in "".join(map(str, sources.tolist()))
