"""Refitting the few free parameters to measured step times.

Parameters are a flat list of (table, entry, name) with bounds, a prior and how firmly it holds.
They are fitted together by robust least squares on log(predicted / measured), each source weighted
so that a large one does not drown the rest. A parameter touches only the rows of its hardware
generation or stack, so derivatives are taken over those rows alone.

Needs scipy, which comes with the extra `meshwright[fit]`.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Key = tuple[str, str, str]
    Column = NDArray[np.float64]

ROBUST_SCALE = 0.1  # errors beyond about 10% count linearly
RELATIVE_STEP = 1e-3
REWEIGHTINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One free parameter.

    `prior` is its physical default and `prior_weight` how many rows with a 10% error the belief in
    it outweighs when the parameter is off by a tenth of its range. `log` fits its logarithm, for
    scales, and the fit begins at `start` (the prior by default).
    """

    table: str
    entry: str
    name: str
    lower: float
    upper: float
    prior: float
    prior_weight: float = 1.0
    log: bool = False
    start: float | None = None

    @property
    def key(self) -> Key:
        """Where the value lives: (table, entry, name)."""
        return (self.table, self.entry, self.name)

    def inward(self, value: float) -> float:
        """The value as the optimizer sees it: 0 to 1 over the range."""
        a, b, x = (self._scaled(v) for v in (self.lower, self.upper, value))
        return (x - a) / (b - a)

    def outward(self, unit: float) -> float:
        """The inverse of `inward`."""
        a, b = self._scaled(self.lower), self._scaled(self.upper)
        x = a + (b - a) * unit
        return math.exp(x) if self.log else x

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else value


class Predictor(Protocol):
    """Predicts measured rows for parameter values."""

    def __call__(self, values: Mapping[Key, float], rows: NDArray[np.int64]) -> Column:
        """Predicted seconds of the rows at `rows`."""

    def touched_by(self, key: Key) -> NDArray[np.int64]:
        """Positions of the rows that a parameter can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Fitted values, the robust cost before and after, and which ended at a bound."""

    parameters: tuple[Parameter, ...]
    values: Mapping[Key, float]
    cost_before: float
    cost_after: float
    evaluations: int
    at_bound: tuple[Key, ...] = ()


def source_weights(sources: Sequence[str], *, exponent: float = 0.7) -> Column:
    """A weight for each row, n^-exponent for a source of n rows: 0 counts rows, 1 counts sources.

    Scaled to a mean of 1.
    """
    count = Counter(sources)
    weights: Column = np.asarray([count[s] ** -exponent for s in sources], dtype=float)
    weights /= weights.mean()
    return weights


def fit(
    parameters: Sequence[Parameter],
    predict: Predictor,
    measured: Column,
    weights: Column,
    *,
    max_evaluations: int = 30,
) -> Fitted:
    """Values of `parameters` that bring predictions nearest to `measured`, in robust least squares.

    Raises MeshwrightError without scipy, and where a prior or start lies outside its bounds.
    """
    least_squares = _scipy_least_squares()
    if not parameters:
        return Fitted(parameters=(), values={}, cost_before=0.0, cost_after=0.0, evaluations=0)
    for parameter in parameters:
        _check(parameter)
    problem = _Problem(tuple(parameters), predict, np.log(measured), np.sqrt(weights))
    start = _starts(parameters)
    found = least_squares(
        problem.residuals,
        start,
        jac=problem.jacobian,
        bounds=(0.0, 1.0),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        max_nfev=max_evaluations,
        x_scale=0.1,
    )
    return Fitted(
        parameters=problem.parameters,
        values=problem.values(found.x),
        cost_before=robust_cost(problem.residuals(start)),
        cost_after=robust_cost(found.fun),
        evaluations=int(found.nfev),
        at_bound=tuple(
            p.key
            for j, (p, x) in enumerate(zip(parameters, found.x, strict=True))
            if j not in problem.inert and _at_end(x)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """The fit's residuals as a linear function around one point: rows first, then priors."""

    parameters: tuple[Parameter, ...]
    point: Column
    residuals: Column
    jacobian: Column


def linearize(
    parameters: Sequence[Parameter], predict: Predictor, measured: Column, weights: Column
) -> Linear:
    """The residuals around the parameters' starts."""
    problem = _Problem(tuple(parameters), predict, np.log(measured), np.sqrt(weights))
    point = _starts(parameters)
    return Linear(
        parameters=problem.parameters,
        point=point,
        residuals=problem.residuals(point),
        jacobian=problem.jacobian(point),
    )


def solve_without(linear: Linear, left_out: NDArray[np.int64]) -> dict[Key, float]:
    """Values fitted to all rows but those at `left_out`, in the linear approximation.

    Iteratively reweighted least squares with the weights of the soft-L1 loss, clipped to bounds.
    """
    kept = np.ones(linear.residuals.size, dtype=bool)
    kept[left_out] = False
    residuals, jacobian = linear.residuals[kept], linear.jacobian[kept]
    point = linear.point.copy()
    for _ in range(REWEIGHTINGS):
        now = residuals + jacobian @ (point - linear.point)
        weighted = jacobian.T / np.sqrt(1.0 + (now / ROBUST_SCALE) ** 2)
        step = np.linalg.solve(weighted @ jacobian, weighted @ now)
        moved = np.clip(point - step, 0.0, 1.0)
        done = np.abs(moved - point).max() < RELATIVE_STEP
        point = moved
        if done:
            break
    return {p.key: p.outward(float(x)) for p, x in zip(linear.parameters, point, strict=True)}


def _starts(parameters: Sequence[Parameter]) -> Column:
    """Where the fit begins, in its own coordinates."""
    return np.asarray([p.inward(p.prior if p.start is None else p.start) for p in parameters])


def robust_cost(residuals: Column) -> float:
    """The soft-L1 cost that `fit` brings down."""
    ratio = residuals / ROBUST_SCALE
    return float(np.sum(np.sqrt(1.0 + ratio**2) - 1.0) * ROBUST_SCALE**2)


def _at_end(unit: float) -> bool:
    return bool(unit < 1e-3 or unit > 1.0 - 1e-3)


def _check(parameter: Parameter) -> None:
    """A parameter must start inside its bounds."""
    for value in (parameter.prior, parameter.start):
        if value is not None and not parameter.lower <= value <= parameter.upper:
            name = ".".join(parameter.key)
            span = f"[{parameter.lower:g}, {parameter.upper:g}]"
            raise MeshwrightError(f"{name}: {value:g} is not within {span}")


def _scipy_least_squares() -> Any:
    """scipy's solver, or an error that says how to get it."""
    try:
        from scipy.optimize import least_squares  # type: ignore[import-untyped]
    except ImportError as error:
        raise MeshwrightError(
            "fitting needs scipy", hint="pip install 'meshwright[fit]'"
        ) from error
    return least_squares


class _Problem:
    """Residuals and Jacobian in the optimizer's coordinates, the last predictions remembered."""

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        predict: Predictor,
        log_measured: Column,
        row_scale: Column,
    ) -> None:
        self.parameters = parameters
        self.predict = predict
        self.log_measured = log_measured
        self.row_scale = row_scale
        self.rows = np.arange(log_measured.size)
        self.touched = [predict.touched_by(p.key) for p in parameters]
        self.priors = np.asarray([p.inward(p.prior) for p in parameters])
        self.prior_scale = np.sqrt([p.prior_weight for p in parameters])
        self.inert: set[int] = set()  # parameters without effect at the start: not tried again
        self._last: tuple[bytes, Column] | None = None

    def values(self, point: Column) -> dict[Key, float]:
        """Parameter values by key."""
        return {p.key: p.outward(float(x)) for p, x in zip(self.parameters, point, strict=True)}

    def log_predicted(self, point: Column) -> Column:
        """Log of the predicted seconds of every row."""
        if self._last is None or self._last[0] != point.tobytes():
            self._last = (point.tobytes(), np.log(self.predict(self.values(point), self.rows)))
        return self._last[1]

    def residuals(self, point: Column) -> Column:
        """Weighted log errors of the rows, then distances from the priors."""
        rows = self.row_scale * (self.log_predicted(point) - self.log_measured)
        return np.concatenate([rows, self.prior_scale * (point - self.priors)])

    def jacobian(self, point: Column) -> Column:
        """Forward differences, each parameter over the rows it touches."""
        base = self.log_predicted(point)
        matrix = np.zeros((base.size + point.size, point.size))
        for j, rows in enumerate(self.touched):
            matrix[base.size + j, j] = self.prior_scale[j]
            if j in self.inert:
                continue
            step = RELATIVE_STEP if point[j] + RELATIVE_STEP <= 1.0 else -RELATIVE_STEP
            moved = point.copy()
            moved[j] += step
            change = np.log(self.predict(self.values(moved), rows)) - base[rows]
            matrix[rows, j] = self.row_scale[rows] * change / step
            if not change.any():
                self.inert.add(j)
        return matrix
