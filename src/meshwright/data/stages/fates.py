"""What became of every document: why it went, what it repeats, or where its tokens are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.reasons import CODES
from meshwright.data.stages.arrange import by_unit, column_name, shards_of
from meshwright.data.stages.decide import dropped_of
from meshwright.data.stages.scanned import scanned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.pack.rows import Column
    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.scanned import Scanned


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the documents that have tokens are, numbered through all units, 12 bytes for each."""

    bounds: Column  # [units + 1]: the documents of each unit that have tokens
    shard: NDArray[np.int32]  # unit of emit, -1 for one that is in none
    document: NDArray[np.int32]  # in the shard, where it first comes
    copies: NDArray[np.uint32]

    def of_unit(self, number: int) -> slice:
        """The documents of a token unit."""
        return slice(int(self.bounds[number]), int(self.bounds[number + 1]))


def places_of(job: Job) -> Places:
    """Turns the arrangement round: from shard -> documents to document -> shard."""
    store = job.store
    counts = [0] * len(job.units)
    if job.build.tokenizer is not None:
        counts = [len(store.column("tokenize", unit.number, "lengths")) for unit in job.units]
    bounds = bounds_of(np.array(counts, dtype=np.int64))
    shard = np.full(bounds[-1], -1, dtype=np.int32)
    document = np.full(bounds[-1], -1, dtype=np.int32)
    copies = np.zeros(bounds[-1], dtype=np.uint32)
    shards = shards_of(store) if job.build.tokenizer is not None else []
    for number in reversed(range(len(shards))):  # the first place is written last
        placed = store.column("arrange", 0, column_name(number))[::-1]
        flat = bounds[placed["unit"]] + placed["index"]
        shard[flat] = number
        document[flat] = np.arange(len(placed), dtype=np.int32)[::-1]
        np.add.at(copies, flat, 1)
    return Places(bounds=bounds, shard=shard, document=document, copies=copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """The documents of one scan unit, column by column; -1 where a column says nothing."""

    unit: Scanned
    reason: NDArray[np.uint16]
    repeats_input: NDArray[np.int32]
    repeats_line: NDArray[np.int64]
    similarity: NDArray[np.float32]
    shard: NDArray[np.int32]
    document: NDArray[np.int32]
    tokens: NDArray[np.int32]
    copies: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.reason)


def fates_of(job: Job, number: int, places: Places) -> Fates:
    """What became of each document of a scan unit."""
    unit = scanned(job, number)
    count = len(unit.documents)
    fates = Fates(
        unit=unit,
        reason=unit.documents["reason"].astype(np.uint16),
        repeats_input=np.full(count, -1, dtype=np.int32),
        repeats_line=np.full(count, -1, dtype=np.int64),
        similarity=np.full(count, -1, dtype=np.float32),
        shard=np.full(count, -1, dtype=np.int32),
        document=np.full(count, -1, dtype=np.int32),
        tokens=np.full(count, -1, dtype=np.int32),
        copies=np.zeros(count, dtype=np.int32),
    )
    _note_repeats(job, number, fates)
    if job.build.tokenizer is not None:
        _note_places(job, number, fates=fates, places=places)
    return fates


def _note_repeats(job: Job, number: int, fates: Fates) -> None:
    """Puts down the duplicates of the unit, and what each repeats."""
    dropped = dropped_of(job, number)
    rows = fates.unit.survivors["row"][dropped["survivor"]]
    fates.reason[rows] = dropped["reason"]
    fates.similarity[rows] = dropped["similarity"]
    for of_unit, here in by_unit(dropped["of_unit"]):
        other = scanned(job, of_unit)
        of = other.documents[other.survivors["row"][dropped["of_survivor"][here]]]
        fates.repeats_input[rows[here]] = of["input"]
        fates.repeats_line[rows[here]] = of["line"]


def _note_places(job: Job, number: int, *, fates: Fates, places: Places) -> None:
    """Puts down where the kept ones are; those in no shard were left out by the mix."""
    here = places.of_unit(number)
    rows = fates.unit.survivors["row"][job.store.column("tokenize", number, "survivors")]
    fates.tokens[rows] = job.store.column("tokenize", number, "lengths")
    fates.shard[rows] = places.shard[here]
    fates.document[rows] = places.document[here]
    fates.copies[rows] = places.copies[here]
    fates.reason[rows[places.copies[here] == 0]] = CODES["mix"]
