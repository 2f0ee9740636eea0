"""Keys change with what they stand for, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.settings import C4, Dedup, FineWeb
from meshwright.data.work.keys import key_of, keys_read
from meshwright.data.work.store import Store

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(plain, max_size=4), st.lists(plain, max_size=4))
def test_equal_parts_have_equal_keys_and_others_other_ones(left: list, right: list) -> None:
    def kinds(value: object) -> object:  # 1 and True are equal to Python, not to a key
        return [kinds(v) for v in value] if isinstance(value, list) else (type(value), value)

    assert (key_of(*left) == key_of(*right)) == (kinds(left) == kinds(right))


def test_settings_of_other_steps_are_other_parts() -> None:
    assert key_of(C4()) != key_of(FineWeb())
    assert key_of(C4()) == key_of(C4())
    assert key_of(Dedup(bands=20)) != key_of(Dedup(bands=21))
    assert key_of(["ab", "c"]) != key_of(["a", "bc"])
    assert key_of(np.int64(3), np.array([1, 2])) == key_of(3, [1, 2])


def test_keys_of_units_that_are_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.writing("scan", 1, key="one"):
        pass
    assert keys_read(store, "scan", [0, 1]) == ["", "one"]
