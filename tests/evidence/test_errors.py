from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.evidence.errors import bound, coverage, errors, judge, relative_error


def test_a_prediction_too_long_is_a_positive_error() -> None:
    assert relative_error(1.1, 1.0) == pytest.approx(0.1)
    assert relative_error([2.0, 3.0], [4.0, 3.0]) == pytest.approx([-0.5, 0.0])


def test_the_figures_of_five_errors() -> None:
    found = errors([0.1, -0.2, 0.3, -0.4, 0.0])
    assert found is not None
    assert found.rows == 5
    assert found.median == pytest.approx(0.2)
    assert found.mean == pytest.approx(0.2)
    assert found.p90 == pytest.approx(0.36)
    assert found.worst == pytest.approx(0.4)
    assert found.bias == pytest.approx(-0.04)


def test_no_rows_have_no_errors() -> None:
    assert errors([]) is None
    assert judge([], []) is None
    assert bound([], [], []) is None
    assert math.isnan(coverage([], [], []))


def test_each_source_counts_once() -> None:
    sources = ["big"] * 90 + ["middle"] * 20 + ["small"]
    off = [0.01] * 90 + [-0.10] * 20 + [0.50]
    found = judge(sources, off)
    assert found is not None
    assert found.median_source == pytest.approx(0.10)
    assert (found.worst_source_name, found.worst_source) == ("middle", pytest.approx(0.10))
    assert (found.worst_bias_name, found.worst_bias) == ("middle", pytest.approx(0.10))
    assert found.by_source["small"].median == pytest.approx(0.5)
    assert found.pooled.rows == 111


def test_a_bound_that_is_exceeded_once_in_four() -> None:
    found = bound([10.0] * 4, [11.0] * 4, [9.0, 10.5, 11.0, 11.5])
    assert found is not None
    assert found.exceeded == pytest.approx(0.25)
    assert found.median_margin == pytest.approx(0.1)


def test_interval_ends_belong_to_the_interval() -> None:
    assert coverage([1, 1, 1, 1], [2, 2, 2, 2], [1, 2, 1.5, 2.1]) == pytest.approx(0.75)


@given(st.lists(st.floats(-0.9, 5.0), min_size=1, max_size=60))
def test_the_figures_are_ordered(off: list[float]) -> None:
    found = errors(off)
    assert found is not None
    assert found.median <= found.p90 + 1e-12 <= found.worst + 2e-12
    assert abs(found.bias) <= found.mean + 1e-12
    assert found.worst == np.abs(off).max()
