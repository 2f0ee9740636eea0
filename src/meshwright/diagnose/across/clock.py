"""One clock for all ranks, from the ends of the collectives that they left together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.across.table import ROOTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.across.match import Matched
    from meshwright.diagnose.across.table import Doubles, Rows
    from meshwright.diagnose.trace.columns import Ints, Longs

ONE_CLOCK_NS = 50_000  # ranks of one host that seem further apart than this have two clocks
LEAST_SHARED = 3  # collectives that two ranks must share before their clocks are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """`shift_ns` is subtracted from each rank's times; `residual_ns` is what ends differ by then.

    `component` numbers ranks whose clocks hang together: 0 has most. Between components nothing
    is known unless the clocks were one to begin with, which is `doubtful` where hosts differ.
    """

    shift_ns: Longs
    residual_ns: float | None
    component: Ints
    shifted: bool
    doubtful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Ends by instance: rows sorted by instance, those of calls that all leave together."""

    row: Longs
    instance: Longs


def clocks_of(rows: Rows, matched: Matched, hosts: Sequence[str]) -> Clocks:
    """Shifts of clocks; none where the clocks are one, as on one host."""
    ends = _ends(rows, matched.instance)
    count = len(rows.ranks)
    if not len(ends.row):
        component = np.arange(count, dtype=np.int32)
        return Clocks(
            shift_ns=np.zeros(count, np.int64),
            residual_ns=None,
            component=component,
            shifted=False,
            doubtful=len(set(hosts)) > 1,
        )
    shift, component = _spanned(_pairs(rows, ends, matched.sure), count)
    ends = _trusted(rows, ends, matched.sure)
    shift = _refined(rows, ends, shift)
    zero = np.zeros(count, np.int64)
    plain, moved = _residual(rows, ends, zero), _residual(rows, ends, shift)
    shift = _chosen(shift, component, hosts, noise_ns=3.0 * moved)
    shifted = bool(shift.any())
    return Clocks(
        shift_ns=shift,
        residual_ns=_residual(rows, ends, shift) if shifted else plain,
        component=_ordered(component),
        shifted=shifted,
        doubtful=shifted or len(set(hosts)) > 1,
    )


def _ends(rows: Rows, instance: Longs) -> Ends:
    """Rows of instances, without broadcasts and the like, which some members leave early."""
    kinds = [k.message.collective.lower() if k.message else k.kernel.lower() for k in rows.kinds]
    early = np.array([_rooted(name) for name in kinds], bool)
    at = np.flatnonzero((instance >= 0) & ~early[rows.kind])
    at = at[np.argsort(instance[at], kind="stable")]
    return Ends(row=at, instance=instance[at])


def _trusted(rows: Rows, ends: Ends, sure: Ints) -> Ends:
    """Without instances that were matched by alignment, where there are others."""
    good = sure[rows.lane[ends.row]] > 0
    return Ends(row=ends.row[good], instance=ends.instance[good]) if good.any() else ends


def _rooted(name: str) -> bool:
    together = ("allreduce", "all_reduce", "reduce_scatter", "reducescatter", "allgather")
    return any(r in name for r in ROOTED) and not any(
        t in name for t in (*together, "all_gather", "sendrecv")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Differences of clocks: `left` minus `right`, and how far they scatter."""

    left: Ints
    right: Ints
    apart_ns: Doubles
    weight: Doubles


def _pairs(rows: Rows, ends: Ends, sure: Ints) -> _Pairs:
    """Every rank of an instance against the first of it, all instances of two ranks together."""
    first = np.concatenate([[True], np.diff(ends.instance) != 0])
    anchor = ends.row[np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))]
    left, right = ends.row[~first], anchor[~first]
    a, b = rows.rank[left], rows.rank[right]
    apart = (rows.end_ns[left] - rows.end_ns[right]).astype(float)
    unsure = sure[rows.lane[left]] == 0
    key = (a.astype(np.int64) * len(rows.ranks) + b) * 2 + unsure
    order = np.lexsort((apart, key))
    key, apart = key[order], apart[order]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(key)) + 1, [len(key)]])
    low, count = bounds[:-1], np.diff(bounds)
    middle = apart[low + count // 2]
    scatter = apart[low + (3 * count) // 4] - apart[low + count // 4] + 1000.0
    trusted = np.where(count >= LEAST_SHARED, 1.0, 1e-3) * np.where(key[low] % 2, 1e-3, 1.0)
    pair = key[low] // 2
    return _Pairs(
        left=(pair // len(rows.ranks)).astype(np.int32),
        right=(pair % len(rows.ranks)).astype(np.int32),
        apart_ns=middle,
        weight=trusted * np.sqrt(count) / scatter,
    )


def _spanned(pairs: _Pairs, count: int) -> tuple[Longs, Ints]:
    """Shifts along the spanning forest of the best differences (Kruskal), and its components."""
    parent, offset = list(range(count)), [0.0] * count  # clock minus its root's

    def root(x: int) -> tuple[int, float]:
        path, total = [], 0.0
        while parent[x] != x:
            path.append((x, total))
            total += offset[x]
            x = parent[x]
        for node, before in path:
            parent[node], offset[node] = x, total - before
        return x, total

    for i in np.argsort(-pairs.weight, kind="stable").tolist():
        (a, at_a), (b, at_b) = root(int(pairs.left[i])), root(int(pairs.right[i]))
        if a != b:
            parent[a], offset[a] = b, float(pairs.apart_ns[i]) - at_a + at_b
    found = [root(x) for x in range(count)]
    shift = np.rint([total for _, total in found]).astype(np.int64)
    return shift, np.array([r for r, _ in found], np.int32)


def _anchored(shift: Longs, component: Ints) -> Longs:
    """The first rank of each component keeps its time."""
    _, first, inverse = np.unique(component, return_index=True, return_inverse=True)
    return shift - shift[first][inverse]


def _refined(rows: Rows, ends: Ends, shift: Longs) -> Longs:
    """Two rounds of medians over all instances: a tree uses each clock's best neighbor only."""
    rank = rows.rank[ends.row]
    for _ in range(2):
        late = _lateness(rows, ends, shift)
        order = np.lexsort((late, rank))
        bounds = np.searchsorted(rank[order], np.arange(len(rows.ranks) + 1))
        low, high = bounds[:-1], bounds[1:]
        has = high > low
        middle = np.zeros(len(rows.ranks))
        middle[has] = late[order][(low[has] + high[has]) // 2]
        shift = shift + np.rint(middle).astype(np.int64)
    return shift


def _lateness(rows: Rows, ends: Ends, shift: Longs) -> Doubles:
    """By how much each row ends after the middle of its instance, on the shifted clocks."""
    at = (rows.end_ns[ends.row] - shift[rows.rank[ends.row]]).astype(np.int64)
    base = int(at.min())
    order = np.lexsort((at, ends.instance))  # instances stay in place
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(ends.instance)) + 1, [len(ends.instance)]])
    low, count = bounds[:-1], np.diff(bounds)
    ordered = at[order] - base
    middle = 0.5 * (ordered[low + (count - 1) // 2] + ordered[low + count // 2])
    late: Doubles = (at - base) - np.repeat(middle, count)
    return late


def _residual(rows: Rows, ends: Ends, shift: Longs) -> float:
    """The 90th percentile of how far ends lie from the middle of their instance."""
    return float(np.percentile(np.abs(_lateness(rows, ends, shift)), 90))


def _chosen(shift: Longs, component: Ints, hosts: Sequence[str], *, noise_ns: float) -> Longs:
    """No shift between ranks that share a clock.

    Ranks of known and different hosts are shifted when the shift stands out of the noise; ranks of
    one host, or of hosts that nobody names, only when one clock cannot explain it.
    """
    chosen = shift.copy()
    for number in np.unique(component):
        at = np.flatnonzero(component == number)
        named = [hosts[place] for place in at.tolist()]
        differ = len(set(named)) > 1 and all(named)
        least = max(noise_ns, 0.0) if differ else max(noise_ns, ONE_CLOCK_NS)
        if np.abs(shift[at] - np.median(shift[at])).max() <= least:
            chosen[at] = 0
        elif differ:
            _by_host(chosen, at, hosts)
    return _anchored(chosen, component)


def _by_host(shift: Longs, at: Longs, hosts: Sequence[str]) -> None:
    """Ranks of one host have one clock: the median of their shifts, if they agree."""
    for host in {hosts[i] for i in at}:
        own = np.array([i for i in at if hosts[i] == host])
        middle = int(np.median(shift[own]))
        if np.abs(shift[own] - middle).max() <= ONE_CLOCK_NS:
            shift[own] = middle


def _ordered(component: Ints) -> Ints:
    """Components numbered from the largest on."""
    _, inverse, counts = np.unique(component, return_inverse=True, return_counts=True)
    place = np.empty(len(counts), np.int32)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return place[inverse]
