"""What lowers the worth of the answer, seen from the set of ranks that there are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from meshwright.base.units import format_duration
from meshwright.base.words import plural, ranks_in_words
from meshwright.diagnose.device import device_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.diagnose.rank import Rank
    from meshwright.hardware.cluster import Gpu
    from meshwright.plan.job import Job

_SLOWED = 1.2  # times the usual step
_MOST = 1 << 20  # ranks that are looked for


def guards_of(ranks: Sequence[Rank], job: Job | None = None) -> Iterator[str]:
    """Ranks there twice or missing, traces of several runs, a plan for another device."""
    if job is not None:
        yield from _elsewhere(ranks, job.cluster.gpu)
    numbers = Counter(rank.rank for rank in ranks if rank.rank is not None)
    twice = sorted(number for number, count in numbers.items() if count > 1)
    if twice:
        yield (
            f"{ranks_in_words(twice)} {_is(twice)} there more than once: "
            "are these traces of one run?"
        )
    unnumbered = sum(rank.rank is None for rank in ranks)
    if unnumbered and len(ranks) > 1:
        says = (
            "does not say which rank it is" if unnumbered == 1 else "do not say which rank they are"
        )
        yield f"{plural(unnumbered, 'trace')} of {len(ranks)} {says} of"
    worlds = sorted({rank.world_size for rank in ranks if rank.world_size})
    if len(worlds) > 1:
        sizes = ", ".join(map(str, worlds))
        yield f"the traces are of runs on {sizes} ranks: give those of one run"
    if worlds:
        yield from _missing(set(numbers), max(worlds))


def _elsewhere(ranks: Sequence[Rank], planned: Gpu) -> Iterator[str]:
    """Devices that the plan is not for."""
    if planned.curves is None and any(rank.computes_on == "host" for rank in ranks):
        yield (
            f"the run computed on CPUs and the plan is for {planned.name}: its terms are not held "
            "against the run"
        )
    found = {gpu.name for rank in ranks if (gpu := device_named(rank.gpu)) is not None}
    if others := sorted(found - {planned.name}):
        yield (
            f"the traces are of {', '.join(others)} and the plan is for {planned.name}: "
            "its times are those of another device"
        )


def slowed(step_us: float | None, metrics: Mapping[str, Any] | None) -> Iterator[str]:
    """Steps that took longer than the run's others while they were traced."""
    usual_s = (metrics or {}).get("step_s_median")
    if step_us and usual_s and step_us / 1e6 > _SLOWED * usual_s:
        yield (
            f"the traced steps take {step_us / 1e6 / usual_s:.2f} times the run's median of "
            f"{format_duration(usual_s)}: the profiler slows it down"
        )


def _missing(there: set[int], world: int) -> Iterator[str]:
    """Ranks of the world that have no trace."""
    if not there:
        return
    absent = [number for number in range(min(world, _MOST)) if number not in there]
    if len(there) == 1 and world > 1:
        yield (
            f"only rank {min(there)} of {world}: waiting cannot be told from transfer, "
            "give the traces of all ranks"
        )
    elif absent:
        yield (
            f"{ranks_in_words(absent)} of {world} {_is(absent)} missing: "
            "how long others waited for them is not known"
        )


def _is(numbers: Sequence[int]) -> str:
    return "is" if len(numbers) == 1 else "are"
