"""Curves from measured times: parameters that make the mean relative error small.

A pattern search over the logarithms of the parameters (Hooke and Jeeves, J. ACM 8, 1961): a curve
has a handful of them and some dozens of points, and no optimizer is needed that the [train] extra
does not bring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

FIRST_STEP, LAST_STEP = 1.0, 0.004  # in the logarithm of a parameter
LEAST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Parameters of a curve and the median of its relative errors on the points."""

    parameters: dict[str, float]
    error: float


def fit(
    seconds_of: Callable[[Mapping[str, float]], Any],
    measured_s: Any,
    *,
    start: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]],
) -> Fit:
    """The parameters near `start`, inside `bounds`, whose seconds come nearest to those measured.

    Nearest in the mean absolute logarithm of the ratio: an outlier (another program had the core)
    weighs once, and a microsecond as much as a second.
    """
    times = np.asarray(measured_s, dtype=float)
    names = tuple(start)
    low = np.log([max(bounds[name][0], LEAST) for name in names])
    high = np.log([bounds[name][1] for name in names])

    def loss(point: NDArray[np.float64]) -> float:
        found = seconds_of(dict(zip(names, np.exp(point).tolist(), strict=True)))
        return float(np.mean(np.abs(np.log(np.maximum(found, LEAST) / times))))

    point = np.clip(np.log([max(start[name], LEAST) for name in names]), low, high)
    point = _searched(loss, point, low, high)
    parameters = dict(zip(names, np.exp(point).tolist(), strict=True))
    ratio = np.asarray(seconds_of(parameters)) / times
    return Fit(parameters=parameters, error=float(np.median(np.abs(ratio - 1.0))))


def _searched(
    loss: Callable[[NDArray[np.float64]], float],
    point: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Steps along each axis while they help, then half as long ones."""
    best, step = loss(point), FIRST_STEP
    while step > LAST_STEP:
        moved, previous = False, point
        for axis in range(len(point)):
            for direction in (step, -step):
                trial = point.copy()
                trial[axis] = np.clip(trial[axis] + direction, low[axis], high[axis])
                value = loss(trial)
                if value < best - 1e-9:
                    point, best, moved = trial, value, True
                    break
        if not moved:
            step /= 2.0
            continue
        trial = np.clip(2.0 * point - previous, low, high)  # once more the same way
        if (value := loss(trial)) < best:
            point, best = trial, value
    return point
