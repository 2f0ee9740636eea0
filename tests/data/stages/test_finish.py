"""The output folder: complete or not there, the same however often it was broken off."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from made_shards import settings, texts, write_corpus
from scan_units import scanned_job

from meshwright.data.building import build
from meshwright.data.settings import Dedup, GopherQuality, Limits, Mix, Pack, Source
from meshwright.data.shards.folder import open_folder
from meshwright.data.shards.manifest import Manifest, read_manifest
from meshwright.data.shards.names import MANIFEST
from meshwright.data.shards.verify import verify
from meshwright.data.stages import texts as texts_stage
from meshwright.data.stages.fates import places_of


def made(root: Path, corpus: list[Path], **changes: Any) -> Manifest:
    return build(settings(root, corpus, **changes), workers=1, engine="inline")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the record of the run."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".build.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    return [
        write_corpus(tmp_path / "raw" / "a.jsonl", texts(60)),
        write_corpus(tmp_path / "raw" / "b.jsonl", texts(40, seed=1)),
    ]


def rows(folder: Path, name: str = "documents.parquet") -> list[dict[str, Any]]:
    return pq.read_table(folder / name).to_pylist()


def test_every_document_has_a_row(tmp_path: Path, corpus: list[Path]) -> None:
    manifest = made(tmp_path, corpus)
    found = rows(tmp_path / "out")
    places = [(Path(row["input"]).name, row["line"], row["id"]) for row in found]
    wanted = [("a.jsonl", n, f"doc-{n - 1}") for n in range(1, 61)]
    wanted += [("b.jsonl", n, f"doc-{n - 1}") for n in range(1, 41)]
    assert places == wanted
    dropped = [row for row in found if row["reason"]]
    assert len(dropped) == manifest.counts["exact_duplicate"] == 10
    assert manifest.counts[""] == 90


def test_duplicates_name_the_document_they_repeat(tmp_path: Path, corpus: list[Path]) -> None:
    made(tmp_path, corpus)
    for row in rows(tmp_path / "out"):
        if row["reason"]:
            assert row["duplicate_of_input"] == row["input"]
            assert row["line"] % 9 == 0
            assert row["duplicate_of_line"] == row["line"] - 5
            assert row["similarity"] == 1
            assert (row["shard"], row["document"], row["copies"]) == (None, None, 0)
        else:
            assert row["duplicate_of_line"] is None
            assert row["copies"] == 1


def test_text_and_tokens_agree(tmp_path: Path, corpus: list[Path]) -> None:
    made(tmp_path, corpus)
    everything = texts(60) + texts(40, seed=1)
    saved = rows(tmp_path / "out", "text-00000.parquet")
    kept = [row for row in rows(tmp_path / "out") if not row["reason"]]
    assert len(saved) == len(kept) == 90
    for text, row in zip(saved, kept, strict=True):
        names = ("input", "line", "id", "shard", "document")
        assert [text[name] for name in names] == [row[name] for name in names]
        number = row["line"] - 1 + (60 if row["input"].endswith("b.jsonl") else 0)
        assert text["text"] == everything[number]
    assert verify(tmp_path / "out").encoded_again >= 30


def test_text_in_several_files_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = scanned_job(tmp_path / "work", [texts(7), [], texts(4, seed=1)], Dedup(exact=False))
    found = {}
    for group_bytes, file_bytes in ((1, 1), (1, 10**9), (10**9, 10**9)):
        monkeypatch.setattr(texts_stage, "GROUP_BYTES", group_bytes)
        monkeypatch.setattr(texts_stage, "FILE_BYTES", file_bytes)
        folder = tmp_path / f"{group_bytes}-{file_bytes}"
        folder.mkdir()
        names = sorted(texts_stage.write_texts(job, folder, places_of(job)))
        groups = sum(pq.ParquetFile(folder / name).num_row_groups for name in names)
        found[len(names), groups] = [row for name in names for row in rows(folder, name)]
    assert list(found) == [(5, 5), (1, 5), (1, 1)]  # blocks of three documents
    assert [row["text"] for row in found[1, 1]] == texts(7) + texts(4, seed=1)
    assert found[5, 5] == found[1, 5] == found[1, 1]


def test_reasons_of_filters(tmp_path: Path, corpus: list[Path]) -> None:
    manifest = made(tmp_path, corpus, gopher_quality=GopherQuality(min_words=20))
    dropped = [row for row in rows(tmp_path / "out") if row["reason"]]
    assert {row["reason"] for row in dropped} > {"gopher_quality.words"}
    assert sum(manifest.counts.values()) == 100
    example = manifest.examples["gopher_quality.words"][0]
    first = next(row for row in dropped if row["reason"] == "gopher_quality.words")
    assert (example.file, example.line) == (first["input"], first["line"])
    assert texts(60)[example.line - 1].startswith(example.excerpt[:50])


def test_what_the_mix_leaves_out_has_its_reason(tmp_path: Path, corpus: list[Path]) -> None:
    build_settings = settings(tmp_path, corpus)
    sources = tuple(
        Source(files=(str(path),), name=path.stem, weight=0.5, id_field="id") for path in corpus
    )
    asked = replace(build_settings, sources=sources, mix=Mix(max_repeats=1))
    manifest = build(asked, workers=1, engine="inline")
    left_out = [row for row in rows(tmp_path / "out") if row["reason"] == "mix"]
    assert manifest.counts["mix"] == len(left_out) > 5
    assert {Path(row["input"]).stem for row in left_out} == {"a"}
    assert verify(tmp_path / "out").findings == ()
    a, b = manifest.sources
    assert a.train_tokens == pytest.approx(b.train_tokens, rel=0.02)


def test_repeats_are_counted(tmp_path: Path, corpus: list[Path]) -> None:
    build_settings = settings(tmp_path, corpus[:1])
    source = replace(build_settings.sources[0], weight=1.0)
    mix = Mix(tokens=5000)
    manifest = build(
        replace(build_settings, sources=(source,), mix=mix), workers=1, engine="inline"
    )
    copies = [row["copies"] for row in rows(tmp_path / "out") if row["copies"]]
    assert max(copies) >= 2
    assert sum(copies) == sum(shard.documents for shard in manifest.shards)
    assert verify(tmp_path / "out").findings == ()


def test_lines_that_cannot_be_read(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "raw" / "a.jsonl", texts(10))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"id": 1}\n{broken\n')
    manifest = made(tmp_path, [path], limits=Limits(bad_fraction=0.5))
    assert manifest.facts["rejected"] == 2
    lines = (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert '"line": 12' in lines[1]


def test_text_alone(tmp_path: Path, corpus: list[Path]) -> None:
    build_settings = replace(settings(tmp_path, corpus), tokenizer=None)
    manifest = build(build_settings, workers=1, engine="inline")
    assert sorted(manifest.files) == ["config.toml", "documents.parquet", "text-00000.parquet"]
    assert len(rows(tmp_path / "out", "text-00000.parquet")) == 90
    assert verify(tmp_path / "out").findings == ()


def test_nothing_left(tmp_path: Path, corpus: list[Path]) -> None:
    manifest = made(tmp_path, corpus, gopher_quality=GopherQuality(min_words=10**5))
    assert manifest.shards == []
    assert manifest.counts == {"": 0, "gopher_quality.words": 100}
    assert verify(tmp_path / "out").findings == ()
    assert len(open_folder(tmp_path / "out")) == 0


def test_the_place_of_the_output_does_not_show(tmp_path: Path, corpus: list[Path]) -> None:
    tokenizer = settings(tmp_path, corpus).tokenizer
    found = []
    for name in ("a", "deep/er/b"):
        build_settings = replace(settings(tmp_path / name, corpus), tokenizer=tokenizer)
        build(build_settings, workers=1, engine="inline")
        found.append(contents(tmp_path / name / "out"))
    assert found[0] == found[1]


class Stopped(Exception):  # noqa: N818 - no error, but a kill
    """Stands for a kill."""


def test_broken_off_at_any_rename(
    tmp_path: Path, corpus: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(tmp_path / "whole", corpus)
    tokenizer = settings(tmp_path / "whole", corpus).tokenizer
    broken = replace(settings(tmp_path / "broken", corpus), tokenizer=tokenizer)
    steps = stop_at = 0
    rename = Path.replace

    def replacing(self: Path, target: Path) -> Path:
        nonlocal steps
        if "out" in Path(target).parts and ".work" not in Path(target).parts:
            steps += 1
            if steps > stop_at:
                raise Stopped
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replacing)
    for stop_at in range(100):
        steps = 0
        try:
            manifest = build(broken, workers=1, engine="inline")
        except Stopped:
            assert stop_at < 2 or not (tmp_path / "broken" / "out" / MANIFEST).exists()
        else:
            break
    assert stop_at > 4
    assert manifest == whole
    assert contents(tmp_path / "broken" / "out") == contents(tmp_path / "whole" / "out")


def interrupted(
    root: Path, corpus: list[Path], monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """A build that stops when it is about to write a file of that name."""
    rename = Path.replace

    def replacing(self: Path, target: Path) -> Path:
        if Path(target).name == before:
            raise Stopped
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replacing)
        with pytest.raises(Stopped):
            made(root, corpus)


def test_a_shard_that_was_damaged_meanwhile_is_made_again(
    tmp_path: Path, corpus: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, corpus, monkeypatch, "documents.parquet")
    out = tmp_path / "out"
    content = bytearray((out / "train-00000.bin").read_bytes())
    content[5] ^= 1
    (out / "train-00000.bin").write_bytes(content)
    (out / "train-00001.idx").unlink()
    made(tmp_path, corpus)
    assert verify(out).findings == ()


def test_what_an_earlier_build_left_is_removed(tmp_path: Path, corpus: list[Path]) -> None:
    made(tmp_path, corpus)
    out = tmp_path / "out"
    (out / "notes.txt").write_text("mine")
    many = len(list(out.glob("train-*.bin")))
    larger = settings(tmp_path, corpus, dedup=Dedup(exact=False))
    larger = replace(larger, output=replace(larger.output, shard_tokens=10**6, text=False))
    build(larger, workers=1, engine="inline", fresh=True)
    assert len(list(out.glob("train-*.bin"))) == 1 < many
    assert not list(out.glob("text-*"))
    assert [Path(f.file).name for f in verify(out).findings] == ["notes.txt"]


def test_kept_work_serves_another_packing(tmp_path: Path, corpus: list[Path]) -> None:
    first = settings(tmp_path, corpus)
    first = replace(first, output=replace(first.output, keep_work=True))
    build(first, workers=1, engine="inline")
    before = contents(tmp_path / "out")
    second = replace(first, pack=Pack(seq_len=16))
    for each in (second, first):
        build(each, workers=1, engine="inline", reuse=True)
        assert verify(tmp_path / "out").findings == ()
        assert read_manifest(tmp_path / "out").packed.seq_len == each.pack.seq_len
    after = {k: v for k, v in contents(tmp_path / "out").items() if not k.startswith(".work")}
    assert after == {k: v for k, v in before.items() if not k.startswith(".work")}


def test_the_settings_are_kept_and_repeat_the_build(tmp_path: Path, corpus: list[Path]) -> None:
    made(tmp_path, corpus)
    out = tmp_path / "out"
    config = tmp_path / "again.toml"
    text = (out / "config.toml").read_text(encoding="utf-8")
    config.write_text(text, encoding="utf-8")
    from meshwright.data.reading import Override, read_build

    again = read_build(config, overrides=[Override("output.folder", str(tmp_path / "b"), "-o")])
    build(again, workers=1, engine="inline")
    assert contents(tmp_path / "b") == contents(out)


def test_no_time_is_in_the_output(tmp_path: Path, corpus: list[Path]) -> None:
    made(tmp_path, corpus)
    first = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    for path in corpus:
        path.touch()
    made(tmp_path, corpus)
    assert contents(tmp_path / "out") == first
