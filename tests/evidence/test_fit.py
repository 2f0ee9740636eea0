from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.evidence.fit import Parameter, fit, linearize, solve_without, source_weights

pytest.importorskip("scipy")

SIZES = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
RATE = ("hardware", "x", "rate")
START = ("stack", "y", "start_s")


class Line:
    """Seconds = size / rate + start, the start only for the last three rows."""

    def __call__(self, values, rows):
        late = np.arange(SIZES.size) >= 3
        return (SIZES / values[RATE] + values[START] * late)[rows]

    def touched_by(self, key):
        return np.arange(SIZES.size) if key == RATE else np.arange(3, SIZES.size)


def parameters(prior_weight: float = 1e-6) -> list[Parameter]:
    shared = {"prior_weight": prior_weight, "log": True}
    return [
        Parameter(table=RATE[0], entry="x", name="rate", lower=0.1, upper=100, prior=1, **shared),
        Parameter(table="stack", entry="y", name="start_s", lower=0.01, upper=9, prior=1, **shared),
    ]


TRUTH = Line()({RATE: 5.0, START: 0.5}, np.arange(6))


def test_known_values_are_found() -> None:
    found = fit(parameters(), Line(), TRUTH, np.ones(6))
    assert found.values[RATE] == pytest.approx(5.0, rel=1e-3)
    assert found.values[START] == pytest.approx(0.5, rel=1e-2)
    assert found.cost_after < 1e-4 < found.cost_before


def test_one_wild_row_does_not_carry_the_fit_away() -> None:
    wild = TRUTH.copy()
    wild[1] *= 50
    found = fit(parameters(), Line(), wild, np.ones(6))
    assert found.values[RATE] == pytest.approx(5.0, rel=0.1)


def test_a_firm_prior_holds() -> None:
    found = fit(parameters(prior_weight=1e9), Line(), TRUTH, np.ones(6))
    assert found.values[RATE] == pytest.approx(1.0, rel=1e-3)


def test_a_parameter_at_its_bound_is_named() -> None:
    narrow = [p if p.key == START else _with_upper(p, 2.0) for p in parameters()]
    found = fit(narrow, Line(), TRUTH, np.ones(6))
    assert RATE in found.at_bound


def _with_upper(parameter: Parameter, upper: float) -> Parameter:
    return Parameter(
        table=parameter.table,
        entry=parameter.entry,
        name=parameter.name,
        lower=parameter.lower,
        upper=upper,
        prior=1.0,
        prior_weight=parameter.prior_weight,
        log=True,
    )


def test_a_prior_outside_its_bounds_is_refused() -> None:
    with pytest.raises(MeshwrightError, match=r"hardware\.x\.rate: 1 is not within \[0\.1, 0\.5\]"):
        fit([_with_upper(parameters()[0], 0.5)], Line(), TRUTH, np.ones(6))


def test_the_range_maps_there_and_back() -> None:
    for parameter in parameters():
        for value in (parameter.lower, 1.0, parameter.upper):
            assert parameter.outward(parameter.inward(value)) == pytest.approx(value)


def test_a_large_source_does_not_drown_a_small_one() -> None:
    sources = ["large"] * 100 + ["small"]
    even = source_weights(sources, exponent=1.0)
    assert even[:100].sum() == pytest.approx(even[100])
    assert even.mean() == pytest.approx(1.0)
    assert source_weights(sources, exponent=0.0) == pytest.approx(np.ones(101))


def test_leaving_a_wild_row_out_finds_the_truth() -> None:
    wild = TRUTH.copy()
    wild[2] *= 1.5
    near = [replace(p, start=s) for p, s in zip(parameters(), (4.8, 0.55), strict=True)]
    linear = linearize(near, Line(), wild, np.ones(6))
    found = solve_without(linear, np.asarray([2]))
    assert found[RATE] == pytest.approx(5.0, rel=0.01)
    assert found[START] == pytest.approx(0.5, rel=0.03)
