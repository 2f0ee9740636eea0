"""How far one rank's calls begin behind another's, where both do not have all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from meshwright.diagnose.across.table import Bools, Doubles
    from meshwright.diagnose.trace.columns import Ints, Longs

MOST_SHIFTS = 4096
SAMPLE = 64  # calls that a shift is judged by
EVEN_NS = 8_000.0  # ends of calls that were one keep their distance this well
NEAR = range(-2, 3)


def shift_of(
    tokens: Ints, ends: Longs, own: Ints, own_ends: Longs, *, guess_ns: float
) -> tuple[int, float]:
    """The shift, and how much later the other clock is in nanoseconds.

    Shifts that the clocks suggest, `guess_ns` apart, are taken where everything fits. Else all are
    tried: most agreeing calls first; layers are alike, so that many shifts agree equally well: then
    the one whose ends keep the most even distance, whatever the clocks are.
    """
    n, m = len(tokens), len(own)
    middle = m // 2
    place = int(np.searchsorted(ends, own_ends[middle] + guess_ns))
    near = np.clip(np.array([place - middle + d for d in NEAR]), 1 - m, n - 1)
    agree, uneven, apart = _judged(tokens, ends, own, own_ends, np.unique(near))
    best = int(np.lexsort((np.abs(apart - guess_ns), -agree))[0])
    if agree[best] >= 0.98 and uneven[best] <= EVEN_NS and abs(apart[best] - guess_ns) <= 5e4:
        return int(np.unique(near)[best]), float(apart[best])
    shifts = np.arange(1 - m, n)
    if len(shifts) > MOST_SHIFTS:  # a cut head or tail, or little lost in between
        shifts = shifts[np.argsort(np.abs(shifts - (n - m) / 2), kind="stable")[:MOST_SHIFTS]]
    agree, uneven, apart = _judged(tokens, ends, own, own_ends, shifts)
    best = int(np.lexsort((uneven, -np.round(agree, 2)))[0])
    return int(shifts[best]), float(apart[best])


def _judged(
    tokens: Ints, ends: Longs, own: Ints, own_ends: Longs, shifts: Longs
) -> tuple[Doubles, Doubles, Doubles]:
    """Of each shift the share of all calls that agree, how unevenly ends lie apart, and how far.

    Unevenness is the mean distance to the median, in nanoseconds.
    """
    sample = np.unique(np.linspace(0, len(own) - 1, SAMPLE).astype(np.int64))
    place = sample[None, :] + shifts[:, None]
    inside = (place >= 0) & (place < len(tokens))
    place = np.clip(place, 0, len(tokens) - 1)
    same: Bools = inside & (tokens[place] == own[sample][None, :])
    apart = np.where(same, (ends[place] - own_ends[sample][None, :]).astype(float), np.nan)
    some = same.any(axis=1)
    middle = np.zeros(len(shifts))
    uneven = np.full(len(shifts), np.inf)
    if some.any():
        middle[some] = np.nanmedian(apart[some], axis=1)
        uneven[some] = np.nanmean(np.abs(apart[some] - middle[some, None]), axis=1)
    return same.sum(axis=1) / len(sample), uneven, middle
