"""The cleaned text of every document kept, as parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need
from meshwright.data.shards.arrow import numbers, strings
from meshwright.data.shards.names import printable, shard_name
from meshwright.data.shards.tables import TEXT_COLUMNS, writing_table
from meshwright.data.stages.arrange import shards_of
from meshwright.data.stages.decide import kept_of
from meshwright.data.stages.scanned import scanned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.data.documents import Documents
    from meshwright.data.shards.hashed import Written
    from meshwright.data.shards.tables import Table
    from meshwright.data.stages.fates import Places
    from meshwright.data.stages.layout import Job

    Group = list[tuple[int, NDArray[np.int64], Documents]]  # unit, places in its survivors, text

FILE_BYTES = 1 << 30  # of text in a file, and in a row group of it
GROUP_BYTES = 32 << 20


def text_name(number: int) -> str:
    """The name of one file of cleaned text."""
    return f"text-{number:05d}.parquet"


def write_texts(job: Job, folder: Path, places: Places) -> dict[str, Written]:
    """Files of about FILE_BYTES of text, in the order of the input."""
    written: dict[str, Written] = {}
    for number, groups in enumerate(_files(job)):
        name = text_name(number)
        with writing_table(folder / name, TEXT_COLUMNS) as table:
            for group in groups:
                _append(table, job, group=group, places=places)
        assert table.written is not None
        written[name] = table.written
    return written


def _files(job: Job) -> Iterator[Iterator[Group]]:
    """Row groups, file by file; at least one file."""
    groups = _groups(job)
    first = next(groups, None)
    yield iter(()) if first is None else _until_full(first, groups)
    while (first := next(groups, None)) is not None:
        yield _until_full(first, groups)


def _until_full(first: Group, groups: Iterator[Group]) -> Iterator[Group]:
    """The groups of one file."""
    group: Group | None = first
    total = 0
    while group is not None:
        yield group
        total += sum(int(documents.bounds[-1]) for _, _, documents in group)
        group = next(groups, None) if total < FILE_BYTES else None


def _groups(job: Job) -> Iterator[Group]:
    """Kept documents by row group."""
    group: Group = []
    total = 0
    for unit in job.units:
        for places, documents in scanned(job, unit.number).batches(kept_of(job, unit.number)):
            group.append((unit.number, places, documents))
            total += int(documents.bounds[-1])
            if total >= GROUP_BYTES:
                yield group
                group, total = [], 0
    if group:
        yield group


def _append(table: Table, job: Job, *, group: Group, places: Places) -> None:
    """One row group."""
    arrow = need("pyarrow", "writing parquet")
    shards = strings([shard_name(*s) for s in shards_of(job.store)])
    parts: list[dict[str, Any]] = []
    for unit, survivors, documents in group:
        shard, document = _places(job, unit, survivors=survivors, places=places)
        parts.append(
            {
                "text": _texts(documents),
                "id": strings(list(documents.ids) or [""] * len(documents)),
                "input": strings([printable(job.inputs[i].path) for i in documents.input.tolist()]),
                "line": numbers(documents.line),
                "shard": shards.take(numbers(shard, missing=shard < 0)),
                "document": numbers(document, missing=shard < 0),
            }
        )
    table.append(
        {name: arrow.chunked_array([part[name] for part in parts]) for name in TEXT_COLUMNS}
    )


def _texts(documents: Documents) -> Any:
    """Documents as an arrow column, without a copy of their text."""
    arrow = need("pyarrow", "writing parquet")
    buffers = [
        arrow.py_buffer(np.ascontiguousarray(part)) for part in (documents.bounds, documents.text)
    ]
    return arrow.LargeStringArray.from_buffers(len(documents), *buffers)


def _places(
    job: Job, unit: int, *, survivors: NDArray[np.int64], places: Places
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Shard and number in it of some survivors of a unit, -1 for those in none."""
    if job.build.tokenizer is None:
        nowhere = np.full(len(survivors), -1, dtype=np.int32)
        return nowhere, nowhere
    tokenized = job.store.column("tokenize", unit, "survivors")
    flat = places.bounds[unit] + np.searchsorted(tokenized, survivors)
    return places.shard[flat], places.document[flat]
