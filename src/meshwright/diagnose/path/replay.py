"""What a step would take over all ranks if something were otherwise.

`what_if` replays the collectives of all ranks: each comes at its own pace, a collective is over a
transfer after its last rank has come. Keys of what it returns:

- "as measured": the replay of nothing changed; what the others are to be held against,
- "communication free", and "<axis> communication free" ("tp", "dp", ...): transfers take no time;
  ranks still wait for each other, and for those without a trace as far as it shows (a collective
  is taken to move for as long as the fastest of its like took),
- "loader kept up": no idle time of the data loader,
- "launch free": the device never waits for the host's launches,
- "rank <R> as fast as the median": the rank's own work takes in no step longer than the median
  rank's (of its pipeline stage),
- "stage <S> as fast as the rest": the same of a pipeline stage beside the other stages,
- "no stragglers": nobody's own work takes longer than the median of its stage.

Taking time away never makes a replay longer: every moment is the latest of others, plus a length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.across.axes import coordinates
from meshwright.diagnose.path.ledger import ledger_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.across.table import Bools, Doubles
    from meshwright.diagnose.path.ledger import Ledger
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Group, Longs

MOST_ROWS = 40_000  # collectives of all ranks that are replayed
TRUSTED = 0.02  # by which the replay of nothing changed may differ from what was measured
MOST_STRAGGLERS = 3
LOADER = ("idle_dataloader",)
LAUNCH = ("idle_host_late_launch", "idle_launch_latency")


class Pace(NamedTuple):
    """How a change moves a rank's own clock: `points` of it, in order, and where they come to."""

    points: Doubles
    moved: Doubles


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is otherwise: how long transfers take, and the pace of each rank."""

    transfer: Longs
    paces: tuple[Pace, ...]


def what_if(ranks: Sequence[Rank], across: Across) -> Mapping[str, float]:
    """Predicted microseconds of a step by change (see the module); {} where no replay can be had.

    It cannot where ranks have no collectives, or where a replay of nothing changed differs by more
    than 2 % from what was measured: what ranks wait for is then not what their traces show.
    """
    met = _in_order(ranks, across)
    ledger = ledger_of(met, across, most_rows=MOST_ROWS) if met else None
    if ledger is None:
        return {}
    steps = len(ledger.clocks.edges[0]) - 1
    if any(len(edges) - 1 != steps for edges in ledger.clocks.edges):
        return {}
    nothing = Change(
        transfer=ledger.transfer,
        paces=tuple(
            Pace(e[[0, -1]].astype(float), e[[0, -1]].astype(float)) for e in ledger.clocks.edges
        ),
    )
    measured = float(ledger.length.mean()) / steps / 1000
    same = replayed_us(ledger, nothing) / steps
    if abs(same - measured) > TRUSTED * measured:
        return {}
    least = _least_us(met)
    answers = {"as measured": same}
    for name, change in _changes(met, across, ledger, nothing):
        floor = least if change.paces is nothing.paces else 0.0
        answers[name] = min(same, max(floor, replayed_us(ledger, change) / steps))
    return answers


def _in_order(ranks: Sequence[Rank], across: Across) -> list[Rank]:
    """The ranks that `across` is of, in its order; [] where they are not these."""
    met = [r for r in ranks if r.instances is not None and len(r.instances.signature)]
    if len(met) != len(across.ranks):
        return []
    by_number = {r.rank: r for r in met if r.rank is not None}
    if set(by_number) == set(across.ranks):
        return [by_number[n] for n in across.ranks]
    return met


def _least_us(ranks: Sequence[Rank]) -> float:
    """What a step takes at least when all collectives take no time: the hosts' and devices' own."""
    told = [
        r.path.what_if_us["communication"] / r.path.step_us * _step_us(r)
        for r in ranks
        if r.path is not None and r.path.step_us and "communication" in r.path.what_if_us
    ]
    return max(told, default=0.0)


def _step_us(rank: Rank) -> float:
    return float(np.mean([s.dur_us for s in rank.device_steps])) if rank.device_steps else 0.0


def _changes(
    ranks: Sequence[Rank], across: Across, ledger: Ledger, nothing: Change
) -> Iterator[tuple[str, Change]]:
    """Changes by name."""
    from dataclasses import replace

    axes = np.array([across.group_axes.get(g, "") for g in ledger.groups] or [""])
    axis = axes[ledger.lane]
    free = np.maximum(ledger.transfer - ledger.moves, 0)
    yield "communication free", replace(nothing, transfer=free)
    for name in sorted(set(axis.tolist()) - {""}):
        transfer = np.where(axis == name, free, ledger.transfer)
        yield f"{name} communication free", replace(nothing, transfer=transfer)
    own = np.array([np.diff(edges) for edges in ledger.clocks.edges], dtype=float)
    loads = np.minimum(_parts(ranks, LOADER, own.shape), own)
    if loads.any():
        paces = tuple(map(_by_step, ledger.clocks.edges, loads, np.ones_like(own)))
        yield "loader kept up", replace(nothing, paces=paces)
    late = np.minimum(_late(ranks, own.shape), own)
    if late.any():
        paces = tuple(map(_by_step, ledger.clocks.edges, np.zeros_like(own), 1 - late / _some(own)))
        yield "launch free", replace(nothing, paces=paces)
    _, number = np.unique(axis, return_inverse=True)
    stage = _stages(ranks, across)
    even = _even_paces(ledger, own, number, stage)
    for name, paces in _evened(ledger, own, across, stage, even):
        yield name, replace(nothing, paces=paces)


def _some(own: Doubles) -> Doubles:
    return np.maximum(own, 1.0)


def _parts(ranks: Sequence[Rank], names: Sequence[str], shape: tuple[int, ...]) -> Doubles:
    """Nanoseconds of parts of the attribution by rank and step."""
    found = np.zeros(shape)
    for i, rank in enumerate(ranks):
        told = rank.step_attributions or ((rank.attribution,) if rank.attribution else ())
        for j, part in enumerate(told[: shape[1]]):
            found[i, j] = sum(part.parts_us.get(name, 0.0) for name in names) * 1000
    return found


def _late(ranks: Sequence[Rank], shape: tuple[int, ...]) -> Doubles:
    """Nanoseconds that a step waits for launches: by the rank's critical path where it has one."""
    found = _parts(ranks, LAUNCH, shape)
    for i, rank in enumerate(ranks):
        if rank.path is not None and "host_launch" in rank.path.what_if_us:
            found[i] = max(rank.path.step_us - rank.path.what_if_us["host_launch"], 0.0) * 1000
    return found


def _by_step(edges: Longs, cut: Doubles, scale: Doubles) -> Pace:
    """A pace that takes `cut` off the beginning of each step, and scales the rest of it."""
    own = np.diff(edges).astype(float)
    points, lengths = np.empty(2 * len(own) + 1), np.empty(2 * len(own))
    points[0:-1:2], points[1::2], points[-1] = edges[:-1], edges[:-1] + cut, edges[-1]
    lengths[0::2], lengths[1::2] = 0.0, (own - cut) * np.clip(scale, 0, 1)
    return Pace(points, np.concatenate(([0.0], np.cumsum(lengths))))


def _evened(
    ledger: Ledger, own: Doubles, across: Across, stage: Longs, even: list[Pace]
) -> Iterator[tuple[str, tuple[Pace, ...]]]:
    """Paces that bring ranks' own work down to the median of their like, or stages to the rest."""
    as_it_is = [Pace(p.points, p.points) for p in even]
    if len(even) > 1:
        yield "no stragglers", tuple(even)
    for straggler in across.stragglers[:MOST_STRAGGLERS]:
        if straggler.rank in across.ranks:
            alone = list(as_it_is)
            row = across.ranks.index(straggler.rank)
            alone[row] = even[row]
            yield f"rank {straggler.rank} as fast as the median", tuple(alone)
    stages = np.unique(stage[stage >= 0])
    if len(stages) > 1:
        usual = np.array([np.median(own[stage == s]) for s in stages])  # whoever is slow in it
        slowest = int(np.argmax(usual))
        scale = np.ones_like(own)
        rest = float(np.median(np.delete(usual, slowest)))
        scale[stage == stages[slowest]] = rest / max(usual[slowest], 1.0)
        paces = tuple(map(_by_step, ledger.clocks.edges, np.zeros_like(own), scale))
        yield f"stage {int(stages[slowest])} as fast as the rest", paces


def _even_paces(ledger: Ledger, own: Doubles, axis: Longs, stage: Longs) -> list[Pace]:
    """For each rank a pace at which no piece of its own work is longer than is usual.

    A piece lies between two collectives. Ranks of a stage run the same program, so that the n-th
    piece of a step between collectives of two axes is the same on all of them; usual is the (lower)
    median of these. A piece that no other rank has keeps its share of the step's own work, which is
    held against that of the other ranks.
    """
    made = [
        _pieces(ledger, number, axis, int(stage[number])) for number in range(len(ledger.ranks))
    ]
    lengths = np.concatenate([piece for _, _, piece, _ in made])
    names = np.concatenate([name for _, _, _, name in made])
    _, key = np.unique(names, axis=0, return_inverse=True)
    usual, many = _lower_medians(key.reshape(-1), lengths)
    cuts = np.cumsum([len(piece) for _, _, piece, _ in made])[:-1]
    paces = []
    for number, common, shared in zip(
        range(len(made)), np.split(usual, cuts), np.split(many, cuts), strict=True
    ):
        points, step, piece, _ = made[number]
        alike = own[stage == stage[number]]
        scale = np.minimum(np.quantile(alike, 0.5, axis=0, method="lower") / _some(own[number]), 1)
        kept = np.where(shared, np.minimum(piece, common), piece * scale[step])
        paces.append(Pace(points.astype(float), np.concatenate(([0.0], np.cumsum(kept)))))
    return paces


def _pieces(
    ledger: Ledger, number: int, axis: Longs, stage: int
) -> tuple[Longs, Longs, Longs, Longs]:
    """Points of a rank's own clock, and of each piece between them: step, length, and its name.

    The name (stage, step, axis before, axis after, which of these) is the same on all ranks of a
    stage.
    """
    edges = ledger.clocks.edges[number]
    rows = np.flatnonzero(ledger.rank == number)
    instance = np.searchsorted(ledger.first, rows, "right") - 1
    at = np.concatenate((np.clip(ledger.clocks.comes[rows], 0, edges[-1]), edges))
    what = np.concatenate((axis[instance], np.full(len(edges), -1)))
    order = np.argsort(at, kind="stable")
    points, what = at[order], what[order]
    step = np.clip(np.searchsorted(edges, points[:-1], "right") - 1, 0, len(edges) - 2)
    kind = np.stack((np.full(len(step), stage), step, what[:-1], what[1:]), axis=1)
    _, alike = np.unique(kind, axis=0, return_inverse=True)
    alike = alike.reshape(-1)
    by_kind = np.argsort(alike, kind="stable")
    counted = np.arange(len(alike)) - np.searchsorted(alike[by_kind], alike[by_kind])
    which = np.empty_like(counted)
    which[by_kind] = counted
    return points, step, np.diff(points), np.column_stack((kind, which))


def _lower_medians(key: Longs, value: Longs) -> tuple[Longs, Bools]:
    """The lower median of the values with each row's key, and whether it has others beside it."""
    order = np.lexsort((value, key))
    new = np.flatnonzero(np.concatenate(([True], np.diff(key[order]) != 0)))
    count = np.diff(np.append(new, len(key)))
    middle = value[order][new + (count - 1) // 2]
    usual, many = np.empty_like(value), np.empty(len(value), dtype=np.bool_)
    usual[order], many[order] = np.repeat(middle, count), np.repeat(count > 1, count)
    return usual, many


def _stages(ranks: Sequence[Rank], across: Across) -> Longs:
    """The pipeline stage of each rank, -1 where none is known."""
    groups: dict[tuple[str, tuple[int, ...]], Group] = {}
    for rank in ranks:
        for group in rank.meta.groups:
            groups[group.name, group.ranks] = group
    return np.array(
        coordinates(across.ranks, tuple(groups.values()), across.group_axes, "pp"), dtype=np.int64
    )


def replayed_us(ledger: Ledger, change: Change) -> float:
    """Mean length of the ranks' windows with a change, in microseconds."""
    comes, stalls = ledger.clocks.comes.astype(float), ledger.clocks.stalls.astype(float)
    ends = np.zeros(len(ledger.ranks))
    for number, pace in enumerate(change.paces):
        mine = ledger.rank == number
        for column in (comes, stalls):
            column[mine] = _moved(column[mine], pace)
        ends[number] = pace.moved[-1]
    over = _played(ledger, comes.tolist(), stalls.tolist(), change.transfer.tolist())
    waited = [_waited(ledger, number, stalls, over) for number in range(len(ledger.ranks))]
    return float((ends + np.array(waited)).mean()) / 1000


def _moved(at: Doubles, pace: Pace) -> Doubles:
    """Moments of an own clock after a change; before the window and after it nothing changes."""
    inside = np.interp(at, pace.points, pace.moved)
    late = np.maximum(at - pace.points[-1], 0.0)
    return np.asarray(np.where(at < 0, at, inside + late))


def _played(
    ledger: Ledger, comes: list[float], stalls: list[float], transfer: list[int]
) -> list[float]:
    """When each row is over, since its rank's window began."""
    over = [0.0] * len(comes)
    sums: list[list[float]] = [[0.0] for _ in ledger.ranks]  # stalls so far, by number of stalls
    held = [rows.tolist() for rows in ledger.clocks.held]
    rank, stalled, start = (
        ledger.rank.tolist(),
        ledger.clocks.stalled.tolist(),
        ledger.start.tolist(),
    )
    behind, gap = ledger.clocks.behind.tolist(), ledger.clocks.gap.tolist()
    late, short = ledger.late.tolist(), ledger.clocks.short.tolist()
    first = ledger.first.tolist()
    for number, takes in enumerate(transfer):
        rows = range(first[number], first[number + 1])
        begun = float("-inf")
        for row in rows:
            own = rank[row]
            so_far, waited_for = sums[own], held[own]
            while len(so_far) <= stalled[row]:
                for_row = waited_for[len(so_far) - 1]
                stands = stalls[for_row] + so_far[-1]
                so_far.append(so_far[-1] + max(0.0, over[for_row] - short[for_row] - stands))
            at = comes[row] + so_far[stalled[row]]
            if behind[row] >= 0:
                at = over[behind[row]] + gap[row]
            begun = max(begun, at + start[own])
        for row in rows:
            over[row] = begun + takes + late[row] - start[rank[row]]
    return over


def _waited(ledger: Ledger, number: int, stalls: Doubles, over: list[float]) -> float:
    """How long a rank stalls in its window."""
    total = 0.0
    for row in ledger.clocks.held[number].tolist():
        total += max(0.0, over[row] - int(ledger.clocks.short[row]) - (float(stalls[row]) + total))
    return total


__all__ = ["what_if"]
