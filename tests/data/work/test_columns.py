"""A column written as it comes is the column that numpy would have written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.work.columns import growing_column
from meshwright.data.work.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@given(
    st.lists(st.lists(st.integers(0, 65_535), max_size=20), max_size=6),
    st.sampled_from([np.uint16, np.int32, np.uint64]),
)
def test_reads_back_whatever_came(store: Store, parts: list[list[int]], dtype: type) -> None:
    with (
        store.writing("tokens", 0, key="k") as draft,
        growing_column(draft, "tokens", dtype) as column,
    ):
        for part in parts:
            column.append(np.array(part, dtype=np.int64))
    found = store.column("tokens", 0, "tokens")
    assert found.dtype == dtype
    assert found.tolist() == [value for part in parts for value in part]


def test_a_count_of_many_digits_fits_the_header(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with (
        store.writing("tokens", 0, key="k") as draft,
        growing_column(draft, "tokens", np.uint16) as column,
    ):
        for _ in range(11):
            column.append(np.arange(100_000, dtype=np.uint16))
    assert len(store.column("tokens", 0, "tokens")) == 1_100_000
