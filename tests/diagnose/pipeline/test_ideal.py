"""A pipeline's idle time taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.pipeline.ideal import bubble_parts_us, ideal_bubble


def test_the_ideal_bubble() -> None:
    assert ideal_bubble(8, 16) == pytest.approx(7 / 23)
    assert ideal_bubble(4, 8, 2) == pytest.approx(3 / 19)
    assert ideal_bubble(1, 4) == 0.0
    assert ideal_bubble(0, 0) == 0.0


def test_even_stages_have_the_ideal_bubble_alone() -> None:
    even = 800.0 / (1 - ideal_bubble(4, 8))
    parts = bubble_parts_us(even, [[800.0] * 4], m=8)
    assert parts["ideal_bubble"] == pytest.approx(even - 800.0)
    assert parts["imbalance"] == pytest.approx(0.0, abs=1e-6)
    assert parts["waits"] == pytest.approx(0.0, abs=1e-6)


def test_a_heavy_stage_is_imbalance_and_the_rest_are_waits() -> None:
    # four stages, eight microbatches of 100 us, on the last stage of 150 us
    step = 8 * 150.0 + 3 * 100.0 + 77.0
    parts = bubble_parts_us(step, [[800.0, 800.0, 800.0, 1200.0]], m=8)
    assert parts["waits"] == pytest.approx(77.0)
    assert parts["imbalance"] == pytest.approx(1500.0 - 900.0 / (1 - ideal_bubble(4, 8)))


def test_the_slowest_replica_counts() -> None:
    slow = bubble_parts_us(9e3, [[800.0] * 4, [1600.0] * 4], m=8)
    assert slow["compute"] == 1200.0
    assert slow["compute"] + slow["ideal_bubble"] + slow["imbalance"] == pytest.approx(2200.0)


TIMES = st.floats(0, 1e7)


@given(
    step=TIMES,
    rows=st.lists(st.lists(TIMES, min_size=1, max_size=6), max_size=3),
    m=st.integers(0, 32),
    v=st.integers(0, 3),
)
def test_parts_sum_to_the_step(step: float, rows: list[list[float]], m: int, v: int) -> None:
    parts = bubble_parts_us(step, rows, m=m, v=v)
    if parts:
        assert sum(parts.values()) == pytest.approx(step)
        assert all(us >= -1e-6 for us in parts.values())
