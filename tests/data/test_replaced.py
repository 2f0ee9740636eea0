"""A folder that is built into again: nothing goes unasked, nothing is made twice."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.data import building as module
from meshwright.data.building import DONE, build
from meshwright.data.settings import Build, Clean, Output, Pack, Source, TokenizerSource
from meshwright.data.shards.verify import verify

TEXTS = [f"Document {number} of some {'words ' * (number % 7)}in a row." for number in range(400)]


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNIT_BYTES", 2 << 10)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Three files, one of each kind of division: cut anywhere, whole, by row groups."""
    folder = tmp_path / "raw"
    folder.mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (folder / "a.jsonl").write_text("".join(lines[:200]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[200:300]).encode()))
    table = pyarrow.table({"text": TEXTS[300:]})
    pyarrow.parquet.write_table(table, folder / "c.parquet", row_group_size=20)
    return folder


@pytest.fixture
def asked(raw: Path, tokenizer_file: Path, tmp_path: Path) -> Build:
    return Build(
        sources=(Source(files=(str(raw),)),),
        tokenizer=TokenizerSource(file=str(tokenizer_file)),
        pack=Pack(seq_len=64),
        output=Output(folder=str(tmp_path / "out")),
    )


def kept(asked: Build) -> Build:
    return replace(asked, output=replace(asked.output, keep_work=True))


class _BrokenError(Exception):
    """A build broken off."""


def broken_off(asked: Build, stage: str, *, after: int = 1, **how: bool) -> None:
    """A build that ends when so many units of a stage are there."""

    def stop(state) -> None:
        if state.stage == stage and state.units_done >= after:
            raise _BrokenError

    with pytest.raises(_BrokenError):
        build(asked, engine="inline", on_progress=stop, **how)


def found_done(asked: Build, **how: bool) -> dict[str, int]:
    """By stage, the units that a build that ends well found finished."""
    first: dict[str, int] = {}
    build(
        asked,
        engine="inline",
        on_progress=lambda state: first.setdefault(state.stage, state.units_done),
        **how,
    )
    return first


def contents(folder: str | Path) -> dict[str, bytes]:
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    named = {str(path.relative_to(folder)): path for path in paths}
    return {name: path.read_bytes() for name, path in named.items() if name[0] != "."}


def anew(asked: Build) -> dict[str, bytes]:
    """What a build in a folder of its own makes."""
    folder = f"{asked.output.folder}-anew"
    build(replace(asked, output=Output(folder=folder)), engine="inline")
    return contents(folder)


def touch(raw: Path) -> None:
    for path in raw.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))


def test_refusal_says_what_differs(asked: Build, raw: Path) -> None:
    build(asked, engine="inline")
    changed = replace(asked, pack=Pack(seq_len=128), clean=Clean(normalize="nfc"))
    with pytest.raises(MeshwrightError) as refused:
        build(changed, engine="inline")
    assert "pack.seq_len: 64 -> 128" in refused.value.message
    assert "clean.normalize: 'none' -> 'nfc'" in refused.value.message
    assert "--reuse" not in refused.value.hint
    (raw / "a.jsonl").write_text('{"text": "another"}\n')
    (raw / "c.parquet").unlink()
    with pytest.raises(
        MeshwrightError, match=r"a\.jsonl: [\d,]+ bytes -> 20; .*c\.parquet is gone"
    ):
        build(asked, engine="inline")
    with pytest.raises(MeshwrightError, match="kept no intermediate files"):
        build(changed, engine="inline", reuse=True)


def test_unfinished_work_goes_only_when_asked(asked: Build) -> None:
    broken_off(asked, "scan", after=3)
    changed = replace(asked, clean=Clean(normalize="nfc"))
    with pytest.raises(MeshwrightError, match=r"3 finished units of 'scan'.*normalize") as refused:
        build(changed, engine="inline")
    assert "--reuse" in refused.value.hint
    assert "--fresh" in refused.value.hint
    assert found_done(asked)["scan"] == 3


@pytest.mark.parametrize("how", [{"reuse": True}, {"fresh": True}])
def test_unfinished_work_is_replaced_when_asked(asked: Build, how: dict[str, bool]) -> None:
    broken_off(asked, "scan", after=3)
    changed = replace(asked, clean=Clean(normalize="nfc"))
    assert found_done(changed, **how)["scan"] == 0
    assert contents(asked.output.folder) == anew(changed)


def test_other_settings_go_on_where_all_that_is_finished_fits(asked: Build) -> None:
    broken_off(asked, "scan", after=3)
    changed = replace(asked, pack=Pack(seq_len=128), seed=5)
    assert found_done(changed)["scan"] == 3
    assert contents(asked.output.folder) == anew(changed)


def test_before_any_unit_is_done_nothing_is_refused(asked: Build) -> None:
    broken_off(asked, "scan", after=0)
    build(replace(asked, clean=Clean(normalize="nfc")), engine="inline")


def test_kept_work_is_reused_by_the_stages_that_still_fit(asked: Build) -> None:
    build(kept(asked), engine="inline")
    before = contents(asked.output.folder)
    changed = kept(replace(asked, pack=Pack(seq_len=128)))
    with pytest.raises(MeshwrightError) as refused:
        build(changed, engine="inline")
    assert "--reuse" in refused.value.hint
    assert contents(asked.output.folder) == before
    found = found_done(changed, reuse=True)
    assert found["scan"] > 5
    assert found["tokenize"] == found["scan"]
    assert found["emit"] == 0
    assert contents(asked.output.folder) == anew(changed)
    assert not [one for one in verify(asked.output.folder).findings if one.severity >= 2]


def test_output_stays_until_the_new_one_is_complete(asked: Build) -> None:
    build(kept(asked), engine="inline")
    before = contents(asked.output.folder)
    changed = replace(asked, pack=Pack(seq_len=128))
    broken_off(changed, "emit", reuse=True)
    assert contents(asked.output.folder) == before
    build(asked, engine="inline")  # that of before is still finished, and its rerun harms nothing
    assert contents(asked.output.folder) == before
    assert found_done(changed)["emit"] == 1  # what was begun goes on without being asked again
    assert contents(asked.output.folder) == anew(changed)
    assert not (Path(asked.output.folder) / ".work").exists()


def test_touched_input_is_the_same_input(asked: Build, raw: Path) -> None:
    broken_off(asked, "link", after=0)
    units = len(list(Path(asked.output.folder).glob(".work/scan/*/unit.json")))
    assert units > 10
    touch(raw)
    assert found_done(asked)["scan"] == units
    os.utime(raw / "a.jsonl", (1_100_000_000, 1_100_000_000))
    said: list[Finding] = []
    build(asked, engine="inline", on_finding=said.append)
    assert [finding.reason for finding in said] == [DONE]


@pytest.mark.parametrize(("name", "at"), [("a.jsonl", 9000), ("b.jsonl.gz", 4), ("c.parquet", 60)])
def test_other_content_of_the_same_size_is_told_apart(
    asked: Build, raw: Path, name: str, at: int
) -> None:
    build(asked, engine="inline")
    text = bytearray((raw / name).read_bytes())
    text[at] ^= 1
    (raw / name).write_bytes(text)
    with pytest.raises(MeshwrightError, match=f"{name} has other content"):
        build(asked, engine="inline")


@pytest.mark.parametrize("harm", ["missing", "short", "manifest"])
def test_damaged_output_is_built_again(asked: Build, harm: str) -> None:
    build(asked, engine="inline")
    before, folder = contents(asked.output.folder), Path(asked.output.folder)
    if harm == "missing":
        (folder / "train-00000.bin").unlink()
        (folder / "tokenizer" / "tokenizer.json").unlink()
    elif harm == "short":
        os.truncate(folder / "documents.parquet", 100)
    else:
        (folder / "manifest.json").write_text("{}")
    with pytest.raises(MeshwrightError, match="is damaged, and parts cannot tell"):
        build(asked, engine="inline", part="0/2")
    said: list[Finding] = []
    build(asked, engine="inline", on_finding=said.append)
    assert [finding.severity for finding in said] == [Severity.WARNING]
    assert "built again" in said[0].message
    assert contents(folder) == before


def test_fresh_removes_nothing_for_settings_that_cannot_be_built(asked: Build) -> None:
    build(asked, engine="inline")
    before = contents(asked.output.folder)
    wrong = replace(asked, sources=(Source(files=("nowhere.jsonl",)),))
    with pytest.raises(MeshwrightError, match="no such file"):
        build(wrong, engine="inline", fresh=True)
    with pytest.raises(MeshwrightError, match="nothing to --reuse"):
        build(asked, engine="inline", fresh=True, reuse=True)
    assert contents(asked.output.folder) == before
