"""Which places of a row a rank holds, as runs of consecutive ones, known on the host.

What is known without a look at a tensor costs no wait for the device, and says which parts of the
score matrix are empty, full or a triangle before anything is computed.
"""

from __future__ import annotations

from meshwright.base.noun import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """Places `start` up to `stop` of a row, in order."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def runs_of(slices: str, *, rank: int, size: int, tokens: int) -> tuple[Run, ...]:
    """The runs of rank `rank` of `size`, `tokens` in all, in the order in which it holds them.

    `slices` is "zigzag" or "contiguous", as the loader deals them (data/loader/slices.py).
    """
    if slices == "contiguous":
        return (Run(rank * tokens, (rank + 1) * tokens),)
    half, last = tokens // 2, 2 * size - 1 - rank
    return Run(rank * half, (rank + 1) * half), Run(last * half, (last + 1) * half)


def order_of(runs: tuple[Run, ...]) -> tuple[tuple[int, int], ...]:
    """(begin, end) of every run inside tokens that lie run by run, sorted by place in the row."""
    spans, begin = [], 0
    for run in runs:
        spans.append((run.start, begin, begin + len(run)))
        begin += len(run)
    return tuple((first, last) for _, first, last in sorted(spans))
