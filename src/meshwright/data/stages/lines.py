"""Lines: how many lines of a file lie before each stretch of it that was scanned by itself.

One unit over all of the scan, for which a stretch counts its lines from 1; with this added they
count from the start of the file. It holds `before`, rows of `BEFORE`, ascending, where not 0.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.shards.names import REJECTED, printable
from meshwright.data.work.keys import key_of, keys_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from meshwright.data.stages.layout import Job
    from meshwright.data.work.store import Store

BEFORE = np.dtype([("unit", "<i4"), ("input", "<i4"), ("lines", "<i8")])


def key_lines(job: Job, _number: int) -> str:
    """What it is made from: all scan units."""
    return key_of("lines", keys_read(job.store, "scan", [unit.number for unit in job.units]))


def run_lines(job: Job, number: int) -> None:
    """Makes the unit."""
    from meshwright.data.source.division import lines_before

    counts = [(job.store.record("scan", unit.number) or {})["lines"] for unit in job.units]
    rows = [
        (unit.number, input, lines)
        for unit, before in zip(job.units, lines_before(job.units, counts), strict=True)
        for input, lines in sorted(before.items())
        if lines
    ]
    with job.store.writing("lines", number, key=key_lines(job, number)) as draft:
        draft.write_column("before", np.array(rows, dtype=BEFORE))


def before(store: Store, unit: int) -> Mapping[int, int]:
    """By input: the lines before a unit's stretch of it; none where that begins the file."""
    if not (store.folder("lines", 0) / "before.npy").exists():
        return {}
    rows = store.column("lines", 0, "before")
    first, last = np.searchsorted(rows["unit"], [unit, unit + 1])
    return {int(row["input"]): int(row["lines"]) for row in rows[first:last]}


def rejected(job: Job, unit: int) -> Iterator[bytes]:
    """The lines of a scan unit's rejected.jsonl, each place as in its whole file."""
    ahead = before(job.store, unit)
    by_path = {printable(job.inputs[input].path): lines for input, lines in ahead.items()}
    with (job.store.folder("scan", unit) / REJECTED).open("rb") as lines:
        for line in lines:
            if not by_path:
                yield line
                continue
            record = json.loads(line)
            record["line"] += by_path.get(record["file"], 0)
            yield json.dumps(record, ensure_ascii=False).encode() + b"\n"


def in_file(documents: NDArray[Any], ahead: Mapping[int, int]) -> NDArray[Any]:
    """Rows of `layout.DOCUMENT` whose lines count from the start of their file."""
    if not ahead:
        return documents
    found = documents.copy()
    for input, lines in ahead.items():
        found["line"][found["input"] == input] += lines
    return found
