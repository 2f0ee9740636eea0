"""Shingles against their definition in plain Python."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.dedup import shingles
from meshwright.data.dedup.shingles import shingle_sets, shingles_of
from meshwright.data.documents import bounds_of

MASK = 2**64 - 1
DOCUMENTS = st.lists(st.lists(st.integers(0, MASK), max_size=12), max_size=6)


def table(documents):
    """What of a `Table` is read."""
    return SimpleNamespace(
        word_hash=np.array([word for words in documents for word in words], dtype=np.uint64),
        word_bounds=bounds_of(np.array([len(words) for words in documents], dtype=np.int64)),
    )


def mixed(value):
    """The finalizer of MurmurHash3."""
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def plain_shingles(words, size):
    """The shingles of one document."""
    runs = [words[i : i + size] for i in range(len(words) - size + 1)]
    start = 0
    if words and not runs:
        runs, start = [words], len(words)
    found = []
    for run in runs:
        value = start
        for word in run:
            value = (value * 0x9E3779B97F4A7C15 + word) & MASK
        found.append(mixed(value))
    return found


@given(DOCUMENTS, st.integers(1, 6))
def test_shingles_of_every_document(documents, size):
    hashes, bounds = shingles_of(table(documents), size)
    found = [hashes[a:b].tolist() for a, b in itertools.pairwise(bounds)]
    assert found == [plain_shingles(words, size) for words in documents]


@given(DOCUMENTS, st.integers(1, 6))
def test_sets_are_sorted_and_distinct(documents, size):
    repeated = [words + words for words in documents]
    hashes, bounds = shingle_sets(table(repeated), size)
    found = [hashes[a:b].tolist() for a, b in itertools.pairwise(bounds)]
    assert found == [sorted(set(plain_shingles(words, size))) for words in repeated]


@pytest.mark.parametrize("stretch", [1, 3, 7])
def test_hashing_by_stretches_changes_nothing(monkeypatch, stretch):
    words = table([list(range(20)), [1, 2], list(range(9))])
    whole, _ = shingles_of(words, 4)
    monkeypatch.setattr(shingles, "_STRETCH", stretch)
    assert np.array_equal(shingles_of(words, 4)[0], whole)


def test_shingles_depend_on_the_order_of_words():
    hashes, _ = shingles_of(table([[1, 2, 3], [3, 2, 1], [1, 3, 2]]), 3)
    assert len(set(hashes.tolist())) == 3
