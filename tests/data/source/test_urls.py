from __future__ import annotations

import contextlib
import gzip
import io
import threading
import zipfile

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Severity
from meshwright.data.settings import Source
from meshwright.data.source import listing
from meshwright.data.source.listing import list_inputs, survey
from meshwright.data.source.opening import reading
from meshwright.data.source.urls import stamp_of

LINES = b"".join(b'{"text":"line %d"}\n' % i for i in range(300))


@pytest.fixture
def bucket():
    """A few files in memory, gone after the test."""
    system = fsspec.filesystem("memory")
    table = io.BytesIO()
    pq.write_table(pa.table({"text": ["p", "q"]}), table)
    files = {
        "/bucket/b.jsonl": LINES,
        "/bucket/a.jsonl.gz": gzip.compress(LINES),
        "/bucket/deep/c.parquet": table.getvalue(),
        "/bucket/notes.csv": b"a,b",
    }
    for path, content in files.items():
        system.pipe(path, content)
    yield system
    system.rm("/bucket", recursive=True)


def listed(*files: str) -> list[str]:
    return [found.path for found in list_inputs((Source(files=files),))]


def test_files_globs_and_folders_are_listed_as_local_ones_are(bucket):
    assert listed("memory://bucket/b.jsonl") == ["memory://bucket/b.jsonl"]
    assert listed("memory://bucket/*.jsonl*") == [
        "memory:///bucket/a.jsonl.gz",
        "memory:///bucket/b.jsonl",
    ]
    everything = [
        "memory:///bucket/a.jsonl.gz",
        "memory:///bucket/b.jsonl",
        "memory:///bucket/deep/c.parquet",
    ]
    assert listed("memory://bucket") == everything
    assert listed("memory://bucket/**/*.parquet") == everything[2:]


@pytest.mark.parametrize("unit_bytes", [64, 16 << 20])
@pytest.mark.parametrize("name", ["b.jsonl", "a.jsonl.gz", "deep/c.parquet"])
def test_their_content_is_read_whole_or_by_ranges(bucket, read_inputs, name, unit_bytes):
    sources = (Source(files=(f"memory://bucket/{name}",)),)
    found = read_inputs(list_inputs(sources), sources, unit_bytes=unit_bytes)
    wanted = ["p", "q"] if "parquet" in name else [f"line {i}" for i in range(300)]
    assert found.texts == wanted
    assert [line for _, line, _ in found.documents] == list(range(1, len(wanted) + 1))


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("memory://bucket/c.jsonl", "no such file", "b.jsonl"),
        ("memory://bucket/*.txt", "no file matches", "there are"),
        ("memory://nothing/here.jsonl", "no such file", "empty or not there"),
        ("memory://bucket/b.jsonl::nosuch://x", "cannot be opened", ""),
    ],
)
def test_what_is_not_there_is_told(bucket, url, message, hint):
    findings = survey((Source(files=(url,)),)).findings
    assert [f.severity for f in findings] == [Severity.ERROR]
    assert message in findings[0].message
    assert hint in findings[0].hint


def test_links_of_protocols_keep_all_their_parts(bucket, tmp_path, read_inputs):
    cached = "simplecache::memory://bucket/*.jsonl"
    assert [url.partition("::")[0] for url in listed(cached)] == ["simplecache"]
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("inner/x.jsonl", LINES)
    sources = (Source(files=(f"zip://inner/*.jsonl::file://{tmp_path}/x.zip",)),)
    assert len(read_inputs(list_inputs(sources), sources).texts) == 300


def test_whatever_a_protocol_raises_is_an_error_of_ours(bucket, monkeypatch):
    class Failing:
        def seek(self, *place: int) -> int:
            return 0

        def read(self, count: int) -> bytes:
            raise RuntimeError("the token has expired\nat line 5")

        def close(self) -> None:
            pass

    monkeypatch.setattr(type(bucket), "_open", lambda *given, **named: Failing())
    with pytest.raises(InvalidInput, match=r"b.jsonl: cannot be read: the token has expired$"):
        listed("memory://bucket/b.jsonl")
    monkeypatch.setattr(type(bucket), "_open", lambda *given, **named: 1 / 0)
    with pytest.raises(InvalidInput, match="division by zero"), reading("memory://bucket/b.jsonl"):
        pass


def test_a_server_that_tells_no_size_is_refused(bucket, monkeypatch):
    monkeypatch.setattr(
        type(bucket), "info", lambda *given, **named: {"type": "file", "size": None}
    )
    with pytest.raises(InvalidInput, match="does not tell its size"):
        listed("memory://bucket/b.jsonl")


def test_a_stamp_is_made_of_what_changes_with_the_content():
    facts = {"size": 5, "ETag": '"abc"', "name": "x"}
    assert stamp_of(facts) != stamp_of(facts | {"ETag": '"abd"'})
    assert stamp_of(facts) != stamp_of(facts | {"size": 6})
    assert stamp_of(facts) == stamp_of(facts | {"name": "y"})


def test_one_file_by_two_urls_is_one_file(bucket):
    names = ("memory://bucket/b.jsonl", "memory:///bucket/b.jsonl", "memory://bucket/b*")
    found = survey((Source(files=names),))
    assert [i.path for i in found.inputs] == ["memory://bucket/b.jsonl"]
    assert [f.severity for f in found.findings] == [Severity.WARNING] * 2


def test_many_files_of_a_server_are_looked_at_together_in_order(bucket, monkeypatch):
    for number in range(40):
        bucket.pipe(f"/bucket/many/{number:02}.jsonl", LINES[: 19 * number] or b"")
    look_at, five = listing.look_at, threading.Barrier(5, timeout=60)

    def looking(*given):
        with contextlib.suppress(threading.BrokenBarrierError):
            five.wait()  # for four others that are looked at in the meantime
        return look_at(*given)

    monkeypatch.setattr(listing, "look_at", looking)
    found = survey((Source(files=("memory://bucket/many",)),))
    assert [i.path[-8:-6] for i in found.inputs] == [f"{number:02}" for number in range(40)]
    assert not five.broken
