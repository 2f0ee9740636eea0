"""Ranks that the others wait for, and what they do meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.across.blame import blame_of
from meshwright.diagnose.across.noun import Straggler
from meshwright.diagnose.across.pace import pace_of
from meshwright.diagnose.across.work import over_others

if TYPE_CHECKING:
    from meshwright.diagnose.across.blame import Blame
    from meshwright.diagnose.across.table import Bools, Doubles, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.across.work import Work

LEAST_SHARE = 0.05  # of all waiting, for a rank to be named
LEAST_LOSS = 0.01  # of the steps, that waiting must cost before anybody is
MOST = 20
EXPLAINS = 0.2  # share of its delay that a part of a rank's work must account for
ROTATES = 0.5  # of the steps at most, that one rank may be waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The stragglers, worst first, and whether another rank is waited for in each step.

    `passed_on` were last only because they waited themselves.
    """

    stragglers: tuple[Straggler, ...]
    passed_on: tuple[Straggler, ...]
    rotates: bool | None


def stragglers_of(rows: Rows, waits: Waits, work: Work) -> Found:
    """Stragglers by the root of the waits.

    Sends between stages wait by design (the bubble of a pipeline): they carry a chain of waits on,
    but count as waits for a straggler only where ranks meet in nothing else.
    """
    if not len(waits):
        return Found(stragglers=(), passed_on=(), rotates=None)
    blocked = blocked_ns(rows, waits)
    handed = handed_over(rows, waits)
    only_sends = bool(handed.all())
    cost = np.add.reduceat(blocked, waits.first[:-1])
    cost[handed & (not only_sends)] = 0.0
    if cost.sum() <= LEAST_LOSS * np.nansum(work.step_us) * 1000.0:
        return Found(stragglers=(), passed_on=(), rotates=None)
    pace = pace_of(rows, waits, work, handed, blocked)
    told = _Told(rows, waits, work, blame_of(rows, waits, blocked, pace), cost)
    return Found(stragglers=told.roots(), passed_on=told.passed_on(), rotates=told.rotates())


def blocked_ns(rows: Rows, waits: Waits) -> Doubles:
    """Waits that no computation hid; of each row."""
    exposed = rows.exposed_ns[waits.row]
    blocked: Doubles = np.minimum(waits.wait_ns, exposed).astype(float)
    return blocked if blocked.any() else waits.wait_ns.astype(float)


def handed_over(rows: Rows, waits: Waits) -> Bools:
    """Instances that are a send and its receipt."""
    pair = np.array([lane.pair is not None or lane.loose for lane in rows.lanes], bool)
    sends = np.array([k.message is None and "sendrecv" in k.kernel.lower() for k in rows.kinds])
    handed: Bools = pair[waits.lane] | (sends[waits.kind] & (np.diff(waits.first) == 2))
    return handed


class _Told:
    """The blame of all instances, by rank and step, as stragglers tell it."""

    def __init__(self, rows: Rows, waits: Waits, work: Work, blame: Blame, cost: Doubles) -> None:
        self.rows, self.work, self.blame = rows, work, blame
        self.count = len(rows.ranks)
        self.cost = cost[blame.instance] * blame.weight
        self.total = max(float(cost.sum()), 1.0)
        self.step = rows.step[waits.row[waits.last]][blame.instance]
        self.times_last = np.bincount(rows.rank[waits.row[waits.last]], minlength=self.count)
        self.by_step = self._by_step()

    def _by_step(self) -> Doubles:
        """Cost by step and root; at least one step."""
        steps = max(len(self.rows.steps), 1)
        inside = (self.step >= 0) & (self.blame.root >= 0)
        key = self.step[inside].astype(np.int64) * self.count + self.blame.root[inside]
        cells = np.bincount(key, weights=self.cost[inside], minlength=steps * self.count)
        return cells.reshape(steps, self.count).astype(float)

    def roots(self) -> tuple[Straggler, ...]:
        """Ranks at the root of waits, most waited for first."""
        by_rank = self._by_root(self.cost)
        named = np.argsort(-by_rank, kind="stable")
        return tuple(
            self._root(int(rank), float(by_rank[rank]))
            for rank in named[:MOST]
            if by_rank[rank] >= LEAST_SHARE * self.total
        )

    def _root(self, rank: int, waited_ns: float) -> Straggler:
        """A rank beside the others in the steps in which it is one to wait for."""
        mine = self.by_step[:, rank]
        steps = np.flatnonzero((mine > 0) & (mine >= 0.5 * mine.max(initial=0.0))).tolist() or [0]
        own = (self.blame.root == rank) & (self.blame.rank == rank) & np.isin(self.step, steps)
        late_us = float(np.max(self.blame.late_ns[own], initial=0.0)) / 1000.0
        because, excess = self._because(rank, steps, late_us)
        return Straggler(
            rank=self.rows.ranks[rank],
            times_last=int(self.times_last[rank]),
            waited_for_us=waited_ns / 1000.0,
            share=waited_ns / self.total,
            because=because,
            over_median=_ratio(*over_others(self.work.own_us, rank, steps)),
            excess_us=excess,
        )

    def _because(self, rank: int, steps: list[int], late_us: float) -> tuple[str, float]:
        """The part of a rank's work that exceeds the others' most, where that explains a delay.

        `late_us` is by how much it came late to a collective, at most.
        """
        most, name = 0.0, "unknown"
        for part, value in self.work.by_part_us.items():
            own, others = over_others(value, rank, steps)
            if own - others > most:
                most, name = own - others, part
        return (name, most) if most > 0 and most >= EXPLAINS * late_us else ("unknown", 0.0)

    def passed_on(self) -> tuple[Straggler, ...]:
        """Ranks that were last mostly because they waited themselves."""
        blame = self.blame
        passed = np.where((blame.root != blame.rank) & (blame.root >= 0), self.cost, 0.0)
        total = np.bincount(blame.rank, weights=self.cost, minlength=self.count)
        by_rank = np.bincount(blame.rank, weights=passed, minlength=self.count)
        named = (by_rank > 0.5 * total) & (by_rank >= LEAST_SHARE * self.total)
        every = list(range(len(self.rows.steps) or 1))
        return tuple(
            Straggler(
                rank=self.rows.ranks[rank],
                times_last=int(self.times_last[rank]),
                waited_for_us=float(by_rank[rank]) / 1000.0,
                share=float(by_rank[rank]) / self.total,
                because="upstream",
                over_median=_ratio(*over_others(self.work.own_us, rank, every)),
                waits_for=self.rows.ranks[self._main_root(rank, passed)],
            )
            for rank in np.argsort(-by_rank, kind="stable")[:MOST].tolist()
            if named[rank]
        )

    def _main_root(self, rank: int, passed: Doubles) -> int:
        return int(np.argmax(self._by_root(np.where(self.blame.rank == rank, passed, 0.0))))

    def _by_root(self, cost: Doubles) -> Doubles:
        known = self.blame.root >= 0
        found = np.bincount(self.blame.root[known], weights=cost[known], minlength=self.count)
        return found.astype(float)

    def rotates(self) -> bool | None:
        """Whether no rank is the one most waited for in half of the steps; None under three."""
        lost = self.by_step.sum(axis=1)
        if not (lost > 0).any():
            return None
        counted = lost >= 0.1 * np.median(lost[lost > 0])
        if np.count_nonzero(counted) < 3:
            return None
        worst = np.argmax(self.by_step[counted], axis=1)
        return bool(np.bincount(worst).max() <= ROTATES * len(worst))


def _ratio(own: float, others: float) -> float:
    return own / others if others else 1.0
