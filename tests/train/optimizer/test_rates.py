"""Learning rates over steps."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.train.optimizer.rates import rate
from meshwright.train.settings import LR_SCHEDULES, Recipe


@given(
    schedule=st.sampled_from(LR_SCHEDULES),
    steps=st.integers(2, 200),
    warmup=st.integers(0, 50),
    decay=st.integers(0, 50),
    low=st.floats(0, 1),
)
def test_rates_lie_between_nothing_and_the_peak_and_never_rise_after_warmup(
    *, schedule: str, steps: int, warmup: int, decay: int, low: float
) -> None:
    recipe = Recipe(schedule=schedule, warmup_steps=warmup, decay_steps=decay, min_lr_ratio=low)
    rates = [rate(recipe, step=step, steps=steps) for step in range(steps)]
    assert all(0 <= r <= 1 + 1e-12 for r in rates)
    later = rates[warmup:]
    assert all(a >= b - 1e-12 for a, b in pairwise(later))
    assert all(a < b for a, b in pairwise(rates[:warmup]))


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_last_update_is_at_the_minimum(schedule: str) -> None:
    recipe = Recipe(schedule=schedule, warmup_steps=3, min_lr_ratio=0.1)
    assert rate(recipe, step=3, steps=50) == pytest.approx(1.0)
    assert rate(recipe, step=49, steps=50) == pytest.approx(0.1)


def test_cosine_is_half_way_in_the_middle() -> None:
    recipe = Recipe(schedule="cosine", min_lr_ratio=0.0)
    assert rate(recipe, step=50, steps=101) == pytest.approx(0.5)


def test_wsd_is_steady_then_falls() -> None:
    recipe = Recipe(schedule="wsd", warmup_steps=2, decay_steps=10, min_lr_ratio=0.0)
    assert rate(recipe, step=0, steps=50) == pytest.approx(1 / 3)
    assert rate(recipe, step=39, steps=50) == 1.0
    assert rate(recipe, step=44, steps=50) == pytest.approx(0.5)
    assert rate(recipe, step=49, steps=50) == pytest.approx(0.0)
