"""Shingle: the sets of shingles of those survivors of a scan unit that may be near duplicates.

A unit holds `survivors` (int32, ascending) and, of each, its distinct shingles, sorted:
hashes[bounds[i]:bounds[i + 1]].
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.dedup.shingles import shingle_sets
from meshwright.data.documents import bounds_of
from meshwright.data.stages.scanned import scanned
from meshwright.data.work.columns import growing_column
from meshwright.data.work.keys import key_of, keys_read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.stages.layout import Job


def candidates_of(job: Job, number: int) -> NDArray[Any]:
    """The candidates of a scan unit, as `link.CANDIDATE`, ascending."""
    return rows_of(job.store.column("link", 0, "candidates"), number)


def rows_of(rows: NDArray[Any], unit: int) -> NDArray[Any]:
    """The rows of one unit, of rows that ascend by unit; few of a mapped column are read."""
    units = rows["unit"]
    return np.array(rows[bisect_left(units, unit) : bisect_left(units, unit + 1)])


def shingle_units(job: Job) -> Mapping[int, int]:
    """The scan units that have candidates, with how many of their bytes these are."""
    if not job.build.dedup.near:
        return {}
    return {
        unit.number: int((rows["stop"] - rows["start"]).sum())
        for unit in job.units
        if len(found := candidates_of(job, unit.number)["survivor"])
        and len(rows := scanned(job, unit.number).survivors[found])
    }


def key_shingle(job: Job, number: int) -> str:
    """What a unit is made from: its scan unit, its candidates, and what a shingle is."""
    survivors = candidates_of(job, number)["survivor"].tobytes()
    read = keys_read(job.store, "scan", [number])
    return key_of(job.build.dedup.shingle_words, survivors, read)


def run_shingle(job: Job, number: int) -> None:
    """Makes the unit of one scan unit."""
    from meshwright.data.words.table import Table

    found, words = scanned(job, number), job.build.dedup.shingle_words
    survivors = np.ascontiguousarray(candidates_of(job, number)["survivor"])
    keep = np.zeros(len(found.survivors), dtype=np.bool_)
    keep[survivors] = True
    lengths = [np.zeros(0, np.int64)]
    with job.store.writing("shingle", number, key=key_shingle(job, number)) as draft:
        with growing_column(draft, "hashes", np.uint64) as column:
            for _, documents in found.batches(keep):
                hashes, bounds = shingle_sets(Table.of(documents), words)
                column.append(hashes)
                lengths.append(np.diff(bounds))
        draft.write_column("survivors", survivors)
        draft.write_column("bounds", bounds_of(np.concatenate(lengths)))
