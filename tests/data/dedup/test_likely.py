"""Sketches: places that differ, and which pairs of a bucket they leave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.dedup.likely import SMALL, differing, likely, most_differing
from meshwright.data.dedup.links import Buckets
from meshwright.data.documents import bounds_of
from meshwright.data.settings import Dedup


@pytest.mark.parametrize("words", [1, 15, 64, 255])
def test_differing_bytes_are_counted(words):
    draw = np.random.default_rng(words)
    one = draw.integers(0, 3, (words * 8, 40), dtype=np.uint8)
    other = draw.integers(0, 3, (words * 8, 40), dtype=np.uint8)
    packed = [np.ascontiguousarray(part.T).view(np.uint64).T for part in (one, other)]
    found = differing(packed[0] ^ packed[1])
    assert found.tolist() == (one != other).sum(axis=0).tolist()


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_differing_bytes_of_any_number(one, other):
    crossed = np.frombuffer(one, np.uint64) ^ np.frombuffer(other, np.uint64)
    assert differing(crossed[None]) == [sum(a != b for a, b in zip(one, other, strict=True))]


def test_the_bar_is_three_deviations_below_the_threshold():
    assert most_differing(Dedup(threshold=0.8)) == 37  # 24 + 3 x 4.38
    assert most_differing(Dedup(threshold=1.0)) == 0


def sketches_of_values(values):
    """Documents whose sketches have one word of eight equal bytes."""
    column = np.array(values, dtype=np.uint64) * np.uint64(0x0101010101010101)
    return lambda numbers: column[None, numbers]


def buckets(*members):
    return Buckets(
        np.array([one for some in members for one in some], dtype=np.int64),
        bounds_of(np.array([len(some) for some in members], dtype=np.int64)),
    )


def as_lists(found):
    return [
        found.members[a:b].tolist() for a, b in zip(found.bounds, found.bounds[1:], strict=False)
    ]


def test_small_buckets_become_their_likely_pairs():
    sketches = sketches_of_values([1, 1, 2, 2, 1])
    found = likely(buckets([0, 1, 2, 4], [2, 3], [0, 3]), sketches, most=7)
    assert as_lists(found) == [[0, 1], [0, 4], [1, 4], [2, 3]]


def test_large_buckets_stay():
    members = list(range(SMALL + 1))
    found = likely(buckets(members), sketches_of_values(members), most=0)
    assert as_lists(found) == [members]


def test_nothing_linked():
    assert len(likely(buckets(), sketches_of_values([]), most=3)) == 0
