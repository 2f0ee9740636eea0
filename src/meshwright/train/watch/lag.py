"""Which ranks hold the others up, from their beats.

Time is counted between looks, so that a pause of the whole machine is not taken for a hang.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.train.watch.heart import STARTING, STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.train.watch.heart import Beat

_STILL_S = 5.0  # without a beat: its process is stopped, or its interpreter is
_LONGEST_LOOK_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When standing still is a hang.

    A step may take `step_s`, or `factor` times the median of the last steps where that is longer;
    any other phase (start, loading, saving, evaluation) `phase_s`.
    """

    step_s: float = 300.0
    factor: float = 10.0
    phase_s: float = 1800.0

    def of(self, beat: Beat) -> float:
        """Seconds that the rank may go on as its beat says. The first step has `phase_s`."""
        if beat.phase == STEP and beat.median_s:
            return max(self.step_s, self.factor * beat.median_s)
        return max(self.phase_s, self.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Ranks that hold the others up, and a sentence for each rank that stands still."""

    ranks: tuple[int, ...]
    lines: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """A rank's last beat, how long it has stood there, and how long it has not beaten."""

    beat: Beat
    stood_s: float = 0.0
    silent_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Watch:
    """Looks at beats time after time."""

    limits: Limits
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _looked_s: float | None = None

    def forget(self) -> None:
        """Starts anew, as the ranks do."""
        self._seen.clear()
        self._looked_s = None

    def look(self, beats: Mapping[int, Beat], *, now_s: float) -> Hang | None:
        """The hang, when some rank has stood still for longer than it may.

        `beats` are those of ranks that still run.
        """
        last_s = now_s if self._looked_s is None else self._looked_s
        self._looked_s = now_s
        passed_s = min(now_s - last_s, _LONGEST_LOOK_S)
        self._seen = {rank: seen for rank, seen in self._seen.items() if rank in beats}
        for rank, beat in beats.items():
            self._note(rank, beat, passed_s)
        over = [
            rank for rank, seen in self._seen.items() if seen.stood_s > self.limits.of(seen.beat)
        ]
        return hang_of(self._seen.values(), over=over) if over else None

    def _note(self, rank: int, beat: Beat, passed_s: float) -> None:
        seen = self._seen.get(rank)
        if seen is None or seen.beat.pid != beat.pid:
            self._seen[rank] = _Seen(beat=beat)
            return
        moved = (seen.beat.step, seen.beat.phase) != (beat.step, beat.phase)
        seen.stood_s = 0.0 if moved else seen.stood_s + passed_s
        seen.silent_s = 0.0 if seen.beat.count != beat.count else seen.silent_s + passed_s
        seen.beat = beat


def hang_of(seen: Iterable[_Seen], *, over: Iterable[int] = ()) -> Hang:
    """Names those who lag.

    They are the ranks without a beat; else those behind in steps; else those that wait in no
    collective while others do; else all that stand still.
    """
    every = list(seen)
    silent = [s for s in every if s.silent_s > _STILL_S]
    furthest = max(s.beat.step for s in every)
    behind = [s for s in every if s.beat.step < furthest]
    apart = [s for s in every if " called at " not in s.beat.waiting_in]
    standing = [s for s in every if s.beat.rank in set(over)]
    together = len(apart) == len(every)
    blamed = silent or behind or ([] if together else apart) or standing or every
    ranks = tuple(sorted(s.beat.rank for s in blamed))
    return Hang(ranks=ranks, lines=tuple(_line(s) for s in sorted(every, key=_rank)))


def _rank(seen: _Seen) -> int:
    return seen.beat.rank


def _line(seen: _Seen) -> str:
    beat = seen.beat
    place = f"step {beat.step}" if beat.phase == STEP else f"{beat.phase} (step {beat.step})"
    if beat.phase == STARTING:
        place = "start"
    doing = beat.waiting_in or "no collective known"
    if seen.silent_s > _STILL_S:
        doing = f"its process shows no life since {seen.silent_s:.0f} s; last seen: {doing}"
    where = f" on {beat.host}" if beat.host else ""
    return f"rank {beat.rank}{where}: {place} for {seen.stood_s:.0f} s, {doing}"
