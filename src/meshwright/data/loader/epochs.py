"""Which row of a source is its n-th sample: every epoch has an order of its own.

Shards are put in a seeded order and taken `WINDOW` at a time; the rows of a window are permuted
among themselves. A source of up to `WINDOW` shards is therefore permuted as a whole, and of a
larger one only two windows are open at any time. Rows hold documents that the build has shuffled
through all shards already, so a window is a sample of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.loader.order import key_of, permuted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

WINDOW = 16  # shards; 4 billion tokens of the usual size. Two are open: less than OPEN_SHARDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The order of a source's rows. `rows` counts those of each shard."""

    rows: tuple[int, ...]
    seed: int
    source: int = 0  # its number in a blend: sources of the same size differ in order
    shuffle: bool = True

    @property
    def size(self) -> int:
        """Rows of an epoch."""
        return sum(self.rows)


def rows_at(numbers: Numbers, epochs: Epochs) -> Numbers:
    """The row, numbered through the shards, of each sample, numbered through the epochs."""
    epoch, place = np.divmod(numbers, epochs.size)
    if not epochs.shuffle:
        return place
    found = np.empty_like(place)
    for number in sorted(set(epoch.tolist())):
        chosen = epoch == number
        key = key_of(epochs.seed, number, epochs.source)
        found[chosen] = _rows_of_epoch(place[chosen], epochs.rows, key=key)
    return found


def _rows_of_epoch(places: Numbers, rows: Sequence[int], *, key: int) -> Numbers:
    """The rows at these places of the epoch that `key` names."""
    if len(rows) <= WINDOW:
        return permuted(places, size=sum(rows), key=key)
    order = permuted(np.arange(len(rows)), size=len(rows), key=key_of(key, 1))
    firsts = bounds_of(np.array(rows, dtype=np.int64))
    bounds = bounds_of(np.diff(firsts)[order])  # of shards, in the order of this epoch
    shifts = firsts[order] - bounds[:-1]  # from a place among ordered rows to the row itself
    windows = np.append(bounds[:-1:WINDOW], bounds[-1])
    within = np.searchsorted(windows, places, side="right") - 1
    found = np.empty_like(places)
    for window in sorted(set(within.tolist())):
        chosen = within == window
        first, size = int(windows[window]), int(windows[window + 1] - windows[window])
        inner = permuted(places[chosen] - first, size=size, key=key_of(key, 2, window)) + first
        found[chosen] = inner + shifts[np.searchsorted(bounds, inner, side="right") - 1]
    return found
