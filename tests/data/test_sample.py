"""A sample holds no document twice and none that is not there, and reaches everywhere."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from meshwright.data.building import plan_job
from meshwright.data.sample import kind_of, sample_of
from meshwright.data.settings import Build, Limits, Output, Source
from meshwright.data.source.opening import cut
from meshwright.data.source.reading import read_unit
from meshwright.data.stages.layout import Job

COUNT = 30_000  # documents of a file, about a kilobyte each


def names(first: int) -> list[str]:
    return [f"document {number}" for number in range(first, first + COUNT)]


def write(kind: str, folder: Path) -> str:
    """Three files, of which the first is a tenth."""
    for part in range(3):
        mine = names(part * COUNT)[: COUNT // 10 if part == 0 else COUNT]
        texts = [f"{name}{' word' * 100}" for name in mine]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        if kind == "jsonl":
            (folder / f"{part}.jsonl").write_bytes(lines)
        elif kind == "gz":
            (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress(lines, 1))
        elif kind == "lines.txt":
            (folder / f"{part}.txt").write_text("\n".join(texts))
        else:
            pyarrow.parquet.write_table(
                pyarrow.table({"text": texts}), folder / f"{part}.parquet", row_group_size=20_000
            )
    return f"{folder}/*"


def job_of(files: str, folder: Path, documents: str = "file") -> Job:
    source = Source(files=(files,), documents=documents)
    return plan_job(Build(sources=(source,), output=Output(folder=str(folder / "out"))))


def sampled(job: Job) -> list[str]:
    """The first two words of every document of the sample."""
    return [
        " ".join(documents.string(place).split()[:2])
        for unit in sample_of(job).units
        for documents in read_unit(
            unit, job.inputs, sources=job.build.sources, limits=Limits(), reject=pytest.fail
        )
        for place in range(len(documents))
    ]


@pytest.mark.parametrize("kind", ["jsonl", "gz", "parquet", "lines.txt"])
def test_each_document_at_most_once_from_every_file(kind: str, tmp_path: Path) -> None:
    job = job_of(write(kind, tmp_path), tmp_path, "line" if kind == "lines.txt" else "file")
    sample, found = sample_of(job), sampled(job)
    assert not sample.is_all
    assert len(found) == len(set(found))
    numbers = sorted(int(name.split()[1]) for name in found)
    assert {number // COUNT for number in numbers} == {0, 1, 2}
    scale = sample.scales[kind_of(job.inputs[0])]
    total = 2 * COUNT + COUNT // 10
    assert len(found) * scale.documents == pytest.approx(total, rel=0.03)
    if kind == "jsonl":  # the widest gap is that of an even spread
        gaps = [b - a for a, b in pairwise(numbers) if a > COUNT]
        assert max(gaps) < 4000


def test_a_small_source_is_sampled_too(tmp_path: Path) -> None:
    write("jsonl", tmp_path)
    (tmp_path / "small.csv").write_text('{"text": "small source"}\n')
    sources = (
        Source(files=(f"{tmp_path}/*.jsonl",)),
        Source(files=(f"{tmp_path}/small.csv",), name="small", format="jsonl"),
    )
    job = plan_job(Build(sources=sources, output=Output(folder=str(tmp_path / "out"))))
    assert "small source" in sampled(job)


def test_the_same_each_time(tmp_path: Path) -> None:
    job = job_of(write("jsonl", tmp_path), tmp_path)
    assert sample_of(job) == sample_of(job)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_cut_is_a_slice(size: int) -> None:
    text = bytes(range(50))
    chunks = [text[at : at + size] for at in range(0, 50, size)]
    for start in (0, 1, 9, 49):
        for stop in (start + 1, start + 5, 50):
            found = cut(iter(chunks), start, stop)
            first = max(0, start - 1)
            assert b"".join(found.inside) == text[first:stop]
            assert b"".join(found.beyond) == text[stop:]
            assert found.before == (start > 0)
