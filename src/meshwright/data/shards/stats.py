"""What a folder of shards holds, by split: tokens, documents, rows, lengths, balance of cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.shards.folder import Folder
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.names import SPLITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.shards.folder import Shard
    from meshwright.data.shards.manifest import Manifest

PERCENTILES = (1, 10, 25, 50, 75, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of documents in tokens, their EOD included. `histogram` counts those of at most
    2, 4, 8, ... tokens that the bin before does not hold."""

    mean: float
    percentiles: dict[int, int]
    longest: int
    histogram: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStats:
    """One split. `cut` documents are in more than one row; costs are sums of squared lengths."""

    split: str
    shards: int
    documents: int
    tokens: int
    rows: int
    padding: int  # tokens
    cut: int
    mean_cost: float  # of a row
    largest_cost: int
    lengths: Lengths | None  # None where there is no document

    @property
    def fill(self) -> float:
        """Share of the rows that is no padding."""
        return self.tokens / max(1, self.tokens + self.padding)

    @property
    def imbalance(self) -> float:
        """The costliest row over the mean one."""
        return self.largest_cost / self.mean_cost if self.mean_cost else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """All of a folder: the manifest, and what only the shards themselves tell."""

    manifest: Manifest
    splits: tuple[SplitStats, ...]
    files: int
    bytes: int


def stats(folder: Path | str) -> Stats:
    """Reads the manifest and the plans of all shards; InvalidInput when either is damaged."""
    root = Path(folder)
    manifest = read_manifest(root)
    named = [split for split in SPLITS if manifest.of_split(split)]
    return Stats(
        manifest=manifest,
        splits=tuple(_split(Folder(root, split, manifest)) for split in named),
        files=len(manifest.files),
        bytes=sum(file.bytes for file in manifest.files.values()),
    )


def _split(folder: Folder) -> SplitStats:
    """One split, a shard at a time."""
    counts: dict[int, int] = {}
    cut = 0
    for number in range(len(folder.records)):
        lengths, pieces = _documents(folder.shard(number))
        cut += int(np.count_nonzero(pieces > 1))
        for length, count in zip(*np.unique(lengths, return_counts=True), strict=True):
            counts[int(length)] = counts.get(int(length), 0) + int(count)
    rows = len(folder)
    return SplitStats(
        split=folder.split,
        shards=len(folder.records),
        documents=sum(record.documents for record in folder.records),
        tokens=folder.tokens,
        rows=rows,
        padding=rows * folder.seq_len - folder.tokens,
        cut=cut,
        mean_cost=sum(record.cost for record in folder.records) / max(1, rows),
        largest_cost=max((record.largest_cost for record in folder.records), default=0),
        lengths=lengths_of(counts),
    )


def _documents(shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens and pieces of each document of a shard."""
    pieces = shard.plan.pieces
    lengths = np.bincount(pieces["document"], pieces["length"]).astype(np.int64)
    return lengths, np.bincount(pieces["document"])


def lengths_of(counts: dict[int, int]) -> Lengths | None:
    """Sums up how many documents have each length; percentiles are lengths that occur."""
    if not counts:
        return None
    values = np.array(sorted(counts), dtype=np.int64)
    numbers = np.array([counts[value] for value in values.tolist()], dtype=np.int64)
    ends = np.cumsum(numbers)
    ranks = [-(-int(ends[-1]) * percent // 100) for percent in PERCENTILES]
    places = np.searchsorted(ends, ranks)
    tops = [1 << (int(value) - 1).bit_length() for value in values.tolist()]
    histogram: dict[int, int] = {}
    for top, count in zip(tops, numbers.tolist(), strict=True):
        histogram[top] = histogram.get(top, 0) + count
    return Lengths(
        mean=float((values * numbers).sum() / ends[-1]),
        percentiles=dict(zip(PERCENTILES, values[places].tolist(), strict=True)),
        longest=int(values[-1]),
        histogram=histogram,
    )
