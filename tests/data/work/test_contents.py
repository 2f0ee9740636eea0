"""What scan units note of their files covers each byte once; a sample notes nothing."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from meshwright.data.settings import Build, Output, Source
from meshwright.data.source.division import plan_units
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.unit import Unit
from meshwright.data.stages.layout import Job
from meshwright.data.work.contents import contents_read, recorded, settled
from meshwright.data.work.store import Store

LINES = [f'{{"text": "line {number}"}}\n' for number in range(300)]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Files cut anywhere, read whole and cut between row groups, in units of 1 KiB."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.jsonl").write_text("".join(LINES))
    (tmp_path / "raw" / "b.jsonl.gz").write_bytes(gzip.compress("".join(LINES).encode()))
    table = pyarrow.table({"text": LINES})
    pyarrow.parquet.write_table(table, tmp_path / "raw" / "c.parquet", row_group_size=50)
    sources = (Source(files=(str(tmp_path / "raw"),)),)
    inputs = list_inputs(sources)
    return Job(
        build=Build(sources=sources, output=Output(folder=str(tmp_path / "out"))),
        inputs=inputs,
        units=plan_units(inputs, unit_bytes=1 << 10),
        store=Store(tmp_path / "out" / ".work"),
    )


def test_stretches_cover_each_file_once(job: Job) -> None:
    edges: dict[str, list[tuple[int, int]]] = {}
    for unit in job.units:
        for name, (_, start, stop, _) in contents_read(job, unit.number).items():
            edges.setdefault(name, []).append((start, stop))
    assert len(edges["0"]) > 3
    assert len(edges["2"]) > 3
    for number, found in enumerate(job.inputs):
        starts, stops = zip(*edges[str(number)], strict=True)
        assert (*starts, found.bytes) == (0, *stops)


def test_a_sample_reads_nothing_again(job: Job) -> None:
    spans = tuple(replace(span, part=(0, 10)) for span in job.units[0].spans)
    sample = replace(job, units=(Unit(number=0, spans=spans, bytes=10),))
    assert contents_read(sample, 0) == {}


def test_only_what_was_read_of_an_unfinished_file_is_compared(job: Job) -> None:
    key = "k"
    with job.store.writing("scan", 0, key=key) as draft:
        draft.facts["contents"] = contents_read(job, 0)
    known = recorded(job, with_content=False)
    path = Path(job.inputs[0].path)
    text = bytearray(path.read_bytes())
    text[-3] ^= 1  # not read yet, or none of the first unit's
    path.write_bytes(text)
    os.utime(path, (1, 1))
    inputs = list_inputs(job.build.sources)
    assert inputs[0].stamp != job.inputs[0].stamp
    assert settled(replace(job, inputs=inputs), known).inputs[0].version == job.inputs[0].stamp
    text[3] ^= 1
    path.write_bytes(text)
    os.utime(path, (1, 1))
    assert settled(replace(job, inputs=inputs), known).inputs[0].version == inputs[0].stamp
