"""How far predictions are from measurements, source by source.

A relative error is predicted / measured - 1: +0.1 is a prediction 10% too long. Bias is the mean
of the relative errors; every other figure is of their absolute values. Percentiles interpolate.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

MANY_ROWS = 20  # a source of at least so many rows is judged by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of a set of rows: how many, and median, mean, p90, worst, bias."""

    rows: int
    median: float
    mean: float
    p90: float
    worst: float
    bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The figures that a fit is judged by, each source counting once.

    `median_source` is the median over sources of their median error, `worst_source` the largest
    median error among sources of `MANY_ROWS` rows or more, `worst_bias` the largest absolute bias
    among those, `p90` the 90th percentile over all rows together.
    """

    median_source: float
    worst_source: float
    worst_source_name: str
    worst_bias: float
    worst_bias_name: str
    p90: float
    by_source: Mapping[str, Errors]
    pooled: Errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How a stated upper bound fares: share of rows above it, and its median distance."""

    rows: int
    exceeded: float
    median_margin: float


def relative_error(predicted: Any, measured: Any) -> Any:
    """predicted / measured - 1, for scalars or columns."""
    return np.asarray(predicted) / np.asarray(measured) - 1.0


def errors(relative: Iterable[float]) -> Errors | None:
    """The errors of some rows; None for no rows."""
    signed = np.asarray(list(relative), dtype=float)
    if not signed.size:
        return None
    size = np.abs(signed)
    return Errors(
        rows=int(signed.size),
        median=float(np.median(size)),
        mean=float(size.mean()),
        p90=float(np.quantile(size, 0.9)),
        worst=float(size.max()),
        bias=float(signed.mean()),
    )


def errors_by(keys: Sequence[Hashable], relative: Sequence[float]) -> dict[Any, Errors]:
    """Errors of each group of rows with the same key, in order of first appearance."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for key, value in zip(keys, relative, strict=True):
        groups[key].append(value)
    return {key: found for key, group in groups.items() if (found := errors(group)) is not None}


def judge(sources: Sequence[str], relative: Sequence[float]) -> Judgement | None:
    """The judgement over rows of these sources; None for no rows."""
    pooled = errors(relative)
    if pooled is None:
        return None
    by_source = errors_by(sources, relative)
    big = {name: e for name, e in by_source.items() if e.rows >= MANY_ROWS} or by_source
    worst = max(big, key=lambda name: big[name].median)
    biased = max(big, key=lambda name: abs(big[name].bias))
    return Judgement(
        median_source=float(np.median([e.median for e in by_source.values()])),
        worst_source=big[worst].median,
        worst_source_name=worst,
        worst_bias=abs(big[biased].bias),
        worst_bias_name=biased,
        p90=pooled.p90,
        by_source=by_source,
        pooled=pooled,
    )


def bound(estimate: Any, upper: Any, measured: Any) -> Bound | None:
    """How an upper bound does against measurements; None for no rows."""
    estimate, upper, measured = (np.asarray(v, dtype=float) for v in (estimate, upper, measured))
    if not measured.size:
        return None
    return Bound(
        rows=int(measured.size),
        exceeded=float(np.mean(measured > upper)),
        median_margin=float(np.median(upper / estimate - 1.0)),
    )


def coverage(low: Any, high: Any, measured: Any) -> float:
    """Share of measurements inside their interval, ends included; NaN for no rows."""
    low, high, measured = (np.asarray(v, dtype=float) for v in (low, high, measured))
    return float(np.mean((measured >= low) & (measured <= high))) if measured.size else float("nan")
