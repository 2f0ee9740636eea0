"""What every analysis asks of ranks: their numbers, their hosts, how long a step of theirs is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.rank import Rank


def numbers_of(ranks: Sequence[Rank]) -> list[int]:
    """The rank of each trace; where some do not say, or two say the same, their order."""
    known = [r.rank for r in ranks if r.rank is not None]
    if len(set(known)) == len(ranks):
        return known
    return list(range(len(ranks)))


def hosts_of(numbers: Sequence[int], ranks: Sequence[Rank]) -> Mapping[int, str]:
    """The host of each rank by its number; without names, by the GPUs that each file counts there.

    "" where neither is told, or files count differently.
    """
    counts = {len(rank.meta.gpus) for rank in ranks}
    per_host = counts.pop() if len(counts) == 1 else 0
    return {
        number: rank.meta.host or (f"node {number // per_host}" if per_host > 1 else "")
        for number, rank in zip(numbers, ranks, strict=True)
    }


def rank_step_us(rank: Rank) -> float:
    """A step of one rank: the device's median, else the host's, else the whole window, else 0."""
    found = rank.device_step_time_us_median or rank.step_time_us_median
    window = rank.attribution or rank.gpu_span
    return found or (window.window_us if window else 0.0)
