"""Groups of equal hashes within documents, against plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.words.groups import Groups, maybe_shared

DOCUMENTS = st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=6)
_SCATTER = 0x9E3779B97F4A7C15


def columns(documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    owner = np.repeat(np.arange(len(documents), dtype=np.int32), [len(d) for d in documents])
    hashes = [value for values in documents for value in values]
    return np.array(hashes, dtype=np.uint64), owner


@given(DOCUMENTS)
def test_later_shared_first_and_counts(documents: list[list[int]]) -> None:
    groups = Groups.of(*columns(documents))
    later = [value in values[:i] for values in documents for i, value in enumerate(values)]
    shared = [values.count(value) > 1 for values in documents for value in values]
    assert groups.is_later.tolist() == later
    assert groups.is_shared.tolist() == shared
    assert sorted(groups.first.tolist()) == [i for i, is_later in enumerate(later) if not is_later]
    assert sorted(groups.counts.tolist()) == sorted(
        values.count(value) for values in documents for value in set(values)
    )


def test_keys_that_collide_over_documents_are_told_apart() -> None:
    hashes = np.array([_SCATTER, 7, 0, 7], dtype=np.uint64)  # the key of the first and third is one
    groups = Groups.of(hashes, np.array([0, 0, 1, 1], dtype=np.int32))
    assert not groups.is_shared.any()
    assert len(groups.begins) == 4


@given(DOCUMENTS)
def test_whatever_is_shared_may_be(documents: list[list[int]]) -> None:
    hashes, owner = columns(documents)
    maybe = set(maybe_shared(hashes, owner).tolist())
    assert set(np.flatnonzero(Groups.of(hashes, owner).is_shared).tolist()) <= maybe


def test_few_others_may_be_shared() -> None:
    values = np.random.default_rng(5).integers(0, 1 << 63, 300_000).astype(np.uint64)
    owner = np.repeat(np.arange(300, dtype=np.int32), 1000)
    assert len(maybe_shared(values, owner)) < 0.1 * len(values)
