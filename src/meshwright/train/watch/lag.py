"""Which ranks hold the others up, from their beats.

Time is counted between looks, so that a pause of the whole machine is not taken for a hang.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.train.watch.heart import STARTING, STEP, Beat

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A rank's last beat, how long it has stood there, and how long it has not beaten."""

    beat: Beat
    stood_s: float = 0.0
    silent_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Watch:
    """Looks at beats time after time."""

    limits: Limits
    _seen: dict[int, Seen] = field(default_factory=dict)
    _looked_s: float | None = None

    def forget(self) -> None:
        """Starts anew, as the ranks do."""
        self._seen.clear()
        self._looked_s = None

    def look(
        self,
        beats: Mapping[int, Beat],
        *,
        own: Mapping[int, int],
        stopped: Collection[int] = (),
        now_s: float,
    ) -> Hang | None:
        """The hang, when one of our ranks has stood still for longer than it may.

        `own` are the ranks that run here, with their processes; one that has not beaten yet stands
        at its start. The beats of other ranks only tell who is behind. One of ours whose process is
        `stopped` may stand no longer than a step, whatever it was at.
        """
        last_s = now_s if self._looked_s is None else self._looked_s
        self._looked_s = now_s
        passed_s = min(now_s - last_s, _LONGEST_LOOK_S)
        silent = {r: Beat(rank=r, pid=p) for r, p in own.items() if not _is_of(beats.get(r), p)}
        known = {**beats, **silent}
        self._seen = {rank: self._noted(rank, beat, passed_s) for rank, beat in known.items()}
        over = [rank for rank in own if self._is_over(rank, is_stopped=rank in stopped)]
        return hang_of(self._seen, own=set(own)) if over else None

    def _is_over(self, rank: int, *, is_stopped: bool) -> bool:
        """Whether a rank has stood still for longer than it may."""
        seen = self._seen[rank]
        return seen.stood_s > (self.limits.step_s if is_stopped else self.limits.of(seen.beat))

    def _noted(self, rank: int, beat: Beat, passed_s: float) -> Seen:
        """What is known of a rank with its new beat."""
        seen = self._seen.get(rank)
        if seen is None or seen.beat.pid != beat.pid:
            return Seen(beat=beat)
        moved = (seen.beat.step, seen.beat.phase) != (beat.step, beat.phase)
        return Seen(
            beat=beat,
            stood_s=0.0 if moved else seen.stood_s + passed_s,
            silent_s=0.0 if seen.beat.count != beat.count else seen.silent_s + passed_s,
        )


def _is_of(beat: Beat | None, pid: int) -> bool:
    return beat is not None and beat.pid == pid


def hang_of(seen: Mapping[int, Seen], *, own: set[int]) -> Hang:
    """Names those who lag.

    They are those behind in steps; else our own without a beat; else those that wait in no
    collective while others do; else all.
    """
    furthest = max(s.beat.step for s in seen.values())
    behind = [r for r, s in seen.items() if s.beat.step < furthest]
    silent = [r for r in own if seen[r].silent_s > _STILL_S]
    apart = [r for r, s in seen.items() if " called at " not in s.beat.waiting_in]
    together = len(apart) == len(seen)
    blamed = behind or silent or ([] if together else apart) or list(seen)
    lines = tuple(_line(seen[r], own=r in own) for r in sorted(seen))
    return Hang(ranks=tuple(sorted(blamed)), lines=lines)


def _line(seen: Seen, *, own: bool) -> str:
    """Where a rank is, for how long, and what it waits in."""
    beat = seen.beat
    place = f"step {beat.step}" if beat.phase == STEP else f"{beat.phase} (step {beat.step})"
    if beat.phase == STARTING:
        place = "its start"
    doing = beat.waiting_in or "in no collective that is known"
    if own and seen.silent_s > _STILL_S:
        doing = f"no life in its process for {seen.silent_s:.0f} s; before that {doing}"
    where = f" on {beat.host}" if beat.host else ""
    return f"rank {beat.rank}{where}: at {place} for {seen.stood_s:.0f} s, {doing}"
