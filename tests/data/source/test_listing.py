from __future__ import annotations

import gzip
import os

import pytest
import zstandard

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Severity
from meshwright.data.settings import Source
from meshwright.data.source.listing import list_inputs, survey

LINE = b'{"text":"a"}\n'


def _gzipped(content: bytes) -> bytes:
    """Without the time of day: the names of tests hold it."""
    return gzip.compress(content, mtime=0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a few files of several kinds."""
    monkeypatch.chdir(tmp_path)
    for name in ("raw/b.jsonl", "raw/a.jsonl", "raw/deep/c.jsonl", "raw/a/x.md", "raw/z.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINE)
    (tmp_path / "raw/.hidden.jsonl").write_bytes(LINE)
    (tmp_path / "raw/notes.py").write_bytes(b"x = 1")
    (tmp_path / "empty").mkdir()
    return tmp_path


def listed(*files: str, **settings: str) -> list[str]:
    return [found.path for found in list_inputs((Source(files=files, **settings),))]


def refused(*files: str, **settings: str):
    """The one finding of a source that is refused."""
    with pytest.raises(InvalidInput) as caught:
        listed(*files, **settings)
    [finding] = caught.value.findings
    return finding


def test_files_stay_in_the_order_of_their_names_globs_and_folders_are_sorted(folder):
    assert listed("raw/b.jsonl", "raw/a.jsonl") == ["raw/b.jsonl", "raw/a.jsonl"]
    assert listed("raw/*.jsonl") == ["raw/a.jsonl", "raw/b.jsonl"]
    assert listed("raw/**/*.jsonl") == ["raw/a.jsonl", "raw/b.jsonl", "raw/deep/c.jsonl"]
    everything = ["raw/a.jsonl", "raw/a/x.md", "raw/b.jsonl", "raw/deep/c.jsonl", "raw/z.txt"]
    assert listed("raw") == everything
    assert listed(f"file://{folder}/raw/z.txt") == [f"{folder}/raw/z.txt"]


def test_a_name_with_the_signs_of_a_glob_is_a_file_first(folder):
    (folder / "raw/a[1].jsonl").write_bytes(LINE)
    assert listed("raw/a[1].jsonl") == ["raw/a[1].jsonl"]


def test_links_to_folders_are_followed_once(folder):
    (folder / "raw/deep/again").symlink_to(folder / "raw")
    (folder / "linked").symlink_to(folder / "raw/deep")
    assert len(listed("raw")) == 5
    assert "linked/c.jsonl" in listed("linked")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("raw/a.jsnl", "no such file", "did you mean raw/a.jsonl"),
        ("rawe/a.jsonl", "no such file", "in . there are"),
        ("raw/*.jsnol", "no file matches", "raw/"),
        ("raw/q/*.jsonl", "no file matches", "raw/"),
        ("empty", "a folder without any", "the folder is empty"),
        ("nosuch://x/y.jsonl", "cannot be opened", "known are"),
        ("memry://x/y.jsonl", "cannot be opened", "did you mean memory"),
    ],
)
def test_a_name_without_a_file_is_told_with_those_near(folder, name, message, hint):
    finding = refused(name)
    assert message in finding.message
    assert finding.file == name
    assert hint in finding.hint


def test_all_that_is_wrong_is_told_at_once(folder):
    with pytest.raises(InvalidInput) as caught:
        listed("raw/nope.jsonl", "raw/a.jsonl", "empty", "raw/never/*.txt")
    assert len(caught.value.findings) == 3


def test_a_folder_of_unknown_files_names_them(folder):
    (folder / "empty/data.csv").write_bytes(b"a,b")
    assert "data.csv" in refused("empty").hint


def test_what_a_folder_leaves_out_is_told(folder):
    (folder / "raw/big.jsonl.xz").write_bytes(b"x")
    findings = survey((Source(files=("raw",)),)).findings
    assert [(f.severity, f.message[:7]) for f in findings] == [
        (Severity.WARNING, "1 files"),
        (Severity.INFO, "1 files"),
    ]
    assert "big.jsonl.xz" in findings[0].value


def test_the_same_file_twice_is_read_once_in_a_source_and_refused_in_two(folder):
    (folder / "link.jsonl").symlink_to(folder / "raw/a.jsonl")
    os.link(folder / "raw/b.jsonl", folder / "hard.jsonl")
    names = ("raw/*.jsonl", "link.jsonl", "raw/../raw/a.jsonl", "hard.jsonl")
    found = survey((Source(files=names),))
    assert [i.path for i in found.inputs] == ["raw/a.jsonl", "raw/b.jsonl"]
    assert [f.severity for f in found.findings] == [Severity.WARNING] * 3
    with pytest.raises(
        InvalidInput, match=r"already named in source one as raw/a.jsonl, and 1 more"
    ):
        list_inputs((Source(files=("raw/*.jsonl",), name="one"), Source(files=("raw/*.jsonl",))))


def test_an_empty_file_is_an_input_that_is_told(folder):
    (folder / "none.jsonl").write_bytes(b"")
    found = survey((Source(files=("none.jsonl",)),))
    assert [i.bytes for i in found.inputs] == [0]
    assert [f.severity for f in found.findings] == [Severity.INFO]


def test_pipes_and_files_that_may_not_be_read_are_told(folder):
    os.mkfifo(folder / "pipe.jsonl")
    assert "pipe or device" in refused("pipe.jsonl").message
    (folder / "dangling.jsonl").symlink_to(folder / "gone")
    assert "cannot be read: No such file" in refused("dangling.jsonl").message
    if os.geteuid():
        (folder / "closed.jsonl").write_bytes(LINE)
        (folder / "closed.jsonl").chmod(0)
        assert "Permission denied" in refused("closed.jsonl").message


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("x.json", LINE, ("jsonl", "")),
        ("x.ndjson.gz", _gzipped(LINE), ("jsonl", "gz")),
        ("x.txt.zst", zstandard.compress(b"text"), ("text", "zst")),
        ("X.JSONL.ZST", zstandard.compress(LINE), ("jsonl", "zst")),
        ("x.jsonl", zstandard.compress(LINE), ("jsonl", "zst")),
        ("x.jsonl.zst", _gzipped(LINE), ("jsonl", "gz")),
        ("x.jsonl.gz", LINE, ("jsonl", "")),
        ("x", LINE, ("jsonl", "")),
        ("x.dat", b"plain words", ("text", "")),
        ("x.gz", _gzipped(b"plain words"), ("text", "gz")),
        ("x.txt", b"ORCHIDS\nBZh PAR", ("text", "")),
    ],
)
def test_the_kind_is_told_by_name_and_content(folder, name, content, kind):
    (folder / name).write_bytes(content)
    [found] = list_inputs((Source(files=(name,)),))
    assert (found.format, found.compression) == kind


@pytest.mark.parametrize(
    ("name", "content", "message", "hint"),
    [
        ("x.parquet", LINE, "is not parquet", 'format = "jsonl"'),
        ("x.jsonl", b"\xfd7zXZ\0....", "is a .xz file", "xz -dc"),
        ("x.txt", b"BZh9\0" * 9, "is a .bz2 file", "bzip2"),
        ("x.jsonl", b"x" * 257 + b"ustar", "is a .tar file", "tar -xf"),
        ("x.tar.gz", _gzipped(b"x" * 257 + b"ustar"), "is a .tar file in a", "tar -xf"),
        ("x.txt.gz", _gzipped(_gzipped(b"x")), "is a .gz file in a compressed", "once"),
        ("x.parquet.gz", _gzipped(b"PAR1"), "parquet inside gz", "gzip -d"),
        ("x.txt", b"%PDF-1.7", "is a .pdf file", "leave it out"),
        ("x.txt", "text".encode("utf-16"), "UTF-16", "iconv"),
        ("x.txt", "some text".encode("utf-16-le"), "UTF-16", "iconv"),
        ("x.txt", "some text".encode("utf-16-be"), "UTF-16", "iconv"),
        ("x", b"\x01\0\0\x02", "no known kind", "format"),
        ("x.json", b' [\n{"text":"a"}]', "one JSON array", "jq -c '.[]'"),
        ("x.json", b'{\n "text": "a"\n}', "JSON spread over lines", "jq -c '.'"),
        ("x.jsonl.gz", b"\0garbage", "is not gz, although", "fetch it again"),
        ("x.jsonl.zst", zstandard.compress(LINE * 99)[:15], "cut short", "again"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_do(folder, name, content, message, hint):
    (folder / name).write_bytes(content)
    finding = refused(name)
    assert message in finding.message
    assert hint in finding.hint


def test_a_format_that_is_given_goes_before_the_name(folder):
    (folder / "x.log").write_bytes(LINE)
    [found] = list_inputs((Source(files=("x.log",), format="text", documents="line"),))
    assert (found.format, found.documents) == ("text", "line")
    (folder / "y.jsonl").write_bytes(b"PAR1....PAR1")
    assert 'format = "parquet"' in refused("y.jsonl", format="jsonl").hint


def test_a_stamp_changes_with_the_file(folder):
    before = list_inputs((Source(files=("raw/a.jsonl",)),))
    (folder / "raw/a.jsonl").write_bytes(LINE * 2)
    after = list_inputs((Source(files=("raw/a.jsonl",)),))
    assert before[0].stamp != after[0].stamp
    assert after == list_inputs((Source(files=("raw/a.jsonl",)),))


@pytest.mark.parametrize("name", ["a\0b.jsonl", "x" * 5000, "", "raw/a.jsonl/b", "\ud800.jsonl"])
def test_names_that_no_file_can_have_are_told(folder, name):
    assert refused(name).message


@pytest.mark.parametrize("pattern", ["raw", "raw/**/*.jsonl", "raw/*/*.md"])
def test_a_folder_that_cannot_be_read_is_told(folder, monkeypatch, pattern):
    def closed(path, real=os.scandir):
        if os.path.basename(os.fspath(path)) == "deep":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    def unlisted(path, real=os.listdir):
        if os.path.basename(os.fspath(path)) == "deep":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    monkeypatch.setattr(os, "listdir", unlisted)
    finding = refused(pattern)
    assert "cannot be read: Permission denied" in finding.message
    assert finding.file.endswith("deep")


def test_folders_that_a_pattern_does_not_reach_are_not_looked_into(folder, monkeypatch):
    def closed(path, real=os.scandir):
        if os.path.basename(os.fspath(path)) == "deep":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert listed("raw/*.jsonl") == ["raw/a.jsonl", "raw/b.jsonl"]
