"""Which depths are read, and what follows from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from meshwright.model.catalogue import load
from meshwright.train.measure.depths import Depths, along, depths_of, groups_of


def layers_of(name, first=0, last=None):
    return load(name).layers[first:last]


def test_equal_layers_are_read_four_and_six_deep():
    assert depths_of(layers_of("llama-3-8b")) == Depths(wanted=32, low=4, high=6)


def test_what_is_shallow_is_read_whole():
    assert depths_of(layers_of("llama-3-8b", 0, 6)) == Depths(wanted=6, low=6, high=6)
    assert depths_of(layers_of("llama-3-8b", 0, 1)).factor == 0


def test_nothing_is_extended_unless_asked_for():
    assert depths_of(layers_of("llama-3-8b"), extend=False) == Depths(wanted=32, low=32, high=32)


def test_dense_layers_before_routed_ones_are_all_kept():
    found = depths_of(layers_of("deepseek-v3"))  # 3 dense, 58 routed
    assert found == Depths(wanted=61, low=7, high=9)


def test_windows_make_no_difference():
    assert depths_of(layers_of("gemma-2-9b")).low == 4


def test_layers_by_turns_are_read_in_whole_periods():
    """Llama 4 Maverick routes every second layer."""
    found = depths_of(layers_of("llama-4-maverick"))
    assert (found.wanted - found.low) % 2 == 0
    assert found.high == found.low + 2


@given(
    low=st.integers(1, 9),
    step=st.integers(1, 4),
    times=st.integers(0, 50),
    slope=st.integers(0, 1000),
    base=st.integers(0, 1000),
)
def test_a_straight_line_is_found(low, step, times, slope, base):
    depths = Depths(wanted=low + step * times, low=low, high=low + step)
    found = along({"x": base + slope * low}, [({"x": base + slope * (low + step)}, depths.factor)])
    assert found["x"] == pytest.approx(base + slope * depths.wanted)


def test_stages_of_other_depths_extend_apart():
    deep, deeper = Depths(wanted=10, low=4, high=6), Depths(wanted=12, low=4, high=6)
    shallow = Depths(wanted=3, low=3, high=3)
    assert groups_of([deep, shallow, deeper, deep]) == [(deep, [0, 3]), (deeper, [2])]
