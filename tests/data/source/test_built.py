"""What a build wrote is no input of another, unless it is asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Severity
from meshwright.data.settings import Source
from meshwright.data.source.listing import survey

LINE = b'{"text":"t"}\n'
WRITTEN = ("manifest.json", "documents.parquet", "rejected.jsonl", "text-00000.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with input, a build in it, and input beside the build's files."""
    built = tmp_path / "raw" / "out"
    (built / "tokenizer").mkdir(parents=True)
    for name in (*WRITTEN, "tokenizer/tokenizer.json"):
        (built / name).write_bytes(LINE)
    (built / "text-00000.parquet").write_bytes(b"PAR1" + LINE)
    (built / "mine.jsonl").write_bytes(LINE)
    (tmp_path / "raw" / "a.jsonl").write_bytes(LINE)
    return tmp_path / "raw"


def listed(*names: str, output: Path | None = None) -> list[str]:
    return [Path(i.path).name for i in survey([Source(files=names)], output=output).inputs]


@pytest.mark.parametrize("what", ["", "/**", "/*/*.json*", "/**/*.json*"])
def test_folders_and_globs_leave_it_out(folder: Path, what: str) -> None:
    found = survey([Source(files=(f"{folder}{what}",))])
    names = {Path(i.path).name for i in found.inputs}
    assert names == ({"mine.jsonl"} if what == "/*/*.json*" else {"a.jsonl", "mine.jsonl"})
    (info,) = [f for f in found.findings if "a build wrote" in f.message]
    assert info.severity is Severity.INFO


@pytest.mark.parametrize("name", WRITTEN)
def test_the_output_is_left_out_before_it_is_finished(folder: Path, name: str) -> None:
    for other in {*WRITTEN} - {name}:
        (folder / "out" / other).unlink()
    output = folder / "x" / ".." / "out"
    assert listed(str(folder), output=output) == ["a.jsonl", "mine.jsonl"]


def test_files_called_alike_are_read_where_no_build_is(tmp_path: Path) -> None:
    (tmp_path / "rejected.jsonl").write_bytes(LINE)
    assert listed(str(tmp_path)) == ["rejected.jsonl"]


def test_cleaned_text_is_read_where_it_is_named(folder: Path) -> None:
    built = folder / "out"
    for name in (str(built), f"{built}/*.parquet", f"{built}/text-00000.parquet"):
        assert "text-00000.parquet" in listed(name)
        assert "documents.parquet" not in listed(name)
    assert listed(str(built), output=built) == ["mine.jsonl"]
    assert listed(f"{built}/rejected.jsonl") == ["rejected.jsonl"]


def test_a_glob_of_nothing_else_is_an_error(folder: Path) -> None:
    found = survey([Source(files=(f"{folder}/out/rej*",))])
    assert [f.severity for f in found.findings] == [Severity.INFO, Severity.ERROR]
    with pytest.raises(InvalidInput, match="nothing but what a build wrote"):
        raise InvalidInput([f for f in found.findings if f.severity is Severity.ERROR])
