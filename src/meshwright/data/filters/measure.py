"""What a filter measures of each document, and the limits that this is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Mask, Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of each document of a batch. NaN passes: the rule does not apply to it.

    `says` is a sentence with {value} where the figure goes, such as "{value} words".
    """

    reason: str
    values: NDArray[np.float64]
    says: str
    least: float = -np.inf
    most: float = np.inf
    share: bool = True  # printed in per cent

    @property
    def fails(self) -> Mask:
        """Which documents are beyond the limits."""
        return (self.values < self.least) | (self.values > self.most)

    def explained(self, index: int) -> str:
        """The figure of one document and the limit it broke: "12 words, at least 50"."""
        return self.told(float(self.values[index]))

    def told(self, value: float) -> str:
        """The same of a figure beyond the limits, which may be rounded."""
        low = abs(value - self.least) < abs(value - self.most)
        limit = self.least if low else self.most
        bound = f"at {'least' if low else 'most'} {self._printed(limit)}"
        return f"{self.says.format(value=self._printed(value))}, {bound}"

    def _printed(self, value: float) -> str:
        if self.share:
            return f"{100 * value:.4g}%"
        return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def shares(parts: NDArray[np.integer], wholes: NDArray[np.integer]) -> NDArray[np.float64]:
    """Each part of its whole; 0 of nothing is 0."""
    return np.asarray(parts / np.maximum(wholes, 1), dtype=np.float64)


def sums(values: NDArray[np.integer] | Mask, bounds: Offsets) -> Offsets:
    """The sum of each consecutive stretch of values, stretch i being bounds[i] to bounds[i + 1]."""
    total = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=total[1:])
    return total[bounds[1:]] - total[bounds[:-1]]


def counts_between(places: Offsets, bounds: Offsets) -> Offsets:
    """How many of the ascending places lie in each stretch."""
    return np.diff(np.searchsorted(places, bounds))
