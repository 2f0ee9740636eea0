"""What lowers the worth of the answer, seen from the set of ranks that there are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from meshwright.base.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.diagnose.rank import Rank

_LISTED = 8


def guards_of(ranks: Sequence[Rank]) -> Iterator[str]:
    """Ranks that are there twice, that are missing, and traces of more than one run."""
    numbers = Counter(rank.rank for rank in ranks if rank.rank is not None)
    twice = sorted(number for number, count in numbers.items() if count > 1)
    if twice:
        yield (
            f"{_ranks(twice)} {_is(twice)} there more than once: are these traces of one run? "
            "figures across ranks take the first of each"
        )
    unnumbered = sum(rank.rank is None for rank in ranks)
    if unnumbered and len(ranks) > 1:
        yield f"{plural(unnumbered, 'trace')} of {len(ranks)} do not say which rank they are of"
    worlds = sorted({rank.world_size for rank in ranks if rank.world_size})
    if len(worlds) > 1:
        sizes = ", ".join(map(str, worlds))
        yield f"the traces are of runs on {sizes} ranks: give those of one run"
    if worlds:
        yield from _missing(set(numbers), max(worlds))


def _missing(there: set[int], world: int) -> Iterator[str]:
    """Ranks of the world that have no trace."""
    if not there:
        return
    absent = [number for number in range(min(world, 1 << 20)) if number not in there]
    if len(there) == 1 and world > 1:
        yield (
            f"only rank {min(there)} of {world}: waiting cannot be told from transfer, "
            "give the traces of all ranks"
        )
    elif absent:
        yield f"{_ranks(absent)} of {world} {_is(absent)} missing: who waits for them is not known"


def _ranks(numbers: Sequence[int]) -> str:
    """ "ranks 1, 2, 5" """
    listed = ", ".join(map(str, numbers[:_LISTED]))
    more = f" and {len(numbers) - _LISTED:,} more" if len(numbers) > _LISTED else ""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {listed}{more}"


def _is(numbers: Sequence[int]) -> str:
    return "is" if len(numbers) == 1 else "are"
