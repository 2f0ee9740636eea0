"""A dry run foretells what a build then does: exactly where it samples all, else nearly."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.building import build, plan_job
from meshwright.data.dry import dry_run
from meshwright.data.settings import (
    Build,
    Dedup,
    Limits,
    Mix,
    Output,
    Pack,
    Source,
    TokenizerSource,
)

NEAR = 0.15  # of documents, tokens, bytes and shares where a part is sampled


def settings(folder: Path, tokenizer: Path, *sources: Source) -> Build:
    return Build(
        sources=sources,
        tokenizer=TokenizerSource(file=str(tokenizer)),
        dedup=Dedup(near=True),
        pack=Pack(seq_len=512),
        output=Output(folder=str(folder / "out"), keep_work=True),
    )


def many(texts: list[str], copies: int) -> list[str]:
    """So many times the documents, each time with other words; one in fifty is empty."""
    return [
        text.replace("a", f"{copy}a") if number % 50 else ""
        for copy in range(copies)
        for number, text in enumerate(texts)
    ]


def write(kind: str, folder: Path, texts: list[str]) -> str:
    """Files of a kind with these documents, and the pattern that names them."""
    folder.mkdir()
    for part in range(3):
        mine = texts[part::3]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in mine).encode()
        if kind == "jsonl":
            (folder / f"{part}.jsonl").write_bytes(lines)
        elif kind == "gz":
            (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress(lines, 6))
        elif kind == "parquet":
            table = pyarrow.table({"text": mine, "other": ["x" * 300] * len(mine)})
            pyarrow.parquet.write_table(table, folder / f"{part}.parquet", row_group_size=3000)
        else:
            for number in range(0, len(mine), joined := max(1, len(texts) // 600)):
                text = "\n\n".join(mine[number : number + joined])
                (folder / f"{part}-{number:05d}.txt").write_text(text or " ")
    return f"{folder}/*"


def taken(folder: Path) -> int:
    """Bytes below a folder, but for the record of the run."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".build.json"
    )


def check_near(asked: Build, *, near: float) -> None:
    """Compares a projection with the build."""
    found = dry_run(plan_job(asked))
    assert not os.path.exists(asked.output.folder)
    manifest = build(asked, engine="inline")
    total = sum(manifest.counts.values())
    assert found.documents == pytest.approx(total, rel=near)
    assert found.kept == pytest.approx(manifest.counts[""] / total, rel=near)
    for reason in set(manifest.counts) | set(found.dropped):
        if reason:
            told, real = found.dropped.get(reason, 0.0), manifest.counts.get(reason, 0) / total
            assert told == pytest.approx(real, rel=near, abs=near / 10), reason
    tokens = sum(shard.tokens for shard in manifest.shards)
    assert found.tokens == pytest.approx(tokens, rel=near)
    used = [source.used_tokens for source in found.sources]
    assert used == pytest.approx(
        [one.train_tokens + one.valid_tokens for one in manifest.sources], rel=near
    )
    out = Path(asked.output.folder)
    size = taken(out) - taken(out / ".work")
    assert found.output_bytes == pytest.approx(size, rel=near + 0.02)
    assert found.work_bytes == pytest.approx(taken(out), rel=near + 0.02)
    assert found.cpu_seconds > 0
    assert found.seconds(1) > found.start_s


@pytest.mark.parametrize("kind", ["jsonl", "gz", "parquet", "txt"])
def test_all_of_a_small_input_is_told_exactly(
    kind: str, tmp_path: Path, texts: list[str], tokenizer_file: Path
) -> None:
    files = write(kind, tmp_path / "raw", texts)
    asked = settings(tmp_path, tokenizer_file, Source(files=(files,)))
    found = dry_run(plan_job(asked))
    assert found.is_all
    assert found.sample_documents == found.documents == len(texts)
    assert found.dropped["exact_duplicate"] > 0
    assert found.dropped["near_duplicate"] > 0
    check_near(asked, near=0)


def test_a_small_weighted_mix_is_told_exactly(
    tmp_path: Path, texts: list[str], tokenizer_file: Path
) -> None:
    web = Source(files=(write("jsonl", tmp_path / "web", texts[:400]),), name="web", weight=0.5)
    books = Source(files=(write("gz", tmp_path / "b", texts[400:]),), name="books", weight=0.5)
    asked = settings(tmp_path, tokenizer_file, web, books)
    check_near(replace(asked, validation=0.1, mix=Mix(max_repeats=1)), near=0)


@pytest.mark.parametrize("kind", ["jsonl", "gz", "parquet", "txt"])
def test_a_large_input_is_told_nearly(
    kind: str, tmp_path: Path, texts: list[str], tokenizer_file: Path
) -> None:
    made = many(texts, 24)
    files = write(kind, tmp_path / "raw", made)
    asked = settings(tmp_path, tokenizer_file, Source(files=(files,)))
    assert not dry_run(plan_job(asked)).is_all
    check_near(replace(asked, dedup=Dedup(exact=False)), near=NEAR)


def test_a_large_weighted_mix_is_told_nearly(
    tmp_path: Path, texts: list[str], tokenizer_file: Path
) -> None:
    made = many(texts, 24)
    web = Source(files=(write("jsonl", tmp_path / "web", made[2000:]),), name="web", weight=0.6)
    code = Source(files=(write("gz", tmp_path / "code", made[:2000]),), name="code", weight=0.4)
    asked = settings(tmp_path, tokenizer_file, web, code)
    asked = replace(asked, dedup=Dedup(exact=False), mix=Mix(max_repeats=2), validation=0.05)
    check_near(asked, near=0.2)


def test_a_mix_that_cannot_be_had_is_refused_as_a_build_would(
    tmp_path: Path, texts: list[str], tokenizer_file: Path
) -> None:
    web = Source(files=(write("jsonl", tmp_path / "web", texts),), name="web", weight=0.5)
    books = Source(files=(write("jsonl", tmp_path / "b", [""] * 5),), name="books", weight=0.5)
    with pytest.raises(InvalidInput, match="no document of books"):
        dry_run(plan_job(settings(tmp_path, tokenizer_file, web, books)))


def test_files_that_stop_a_build_are_named(tmp_path: Path, tokenizer_file: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "some words"}\nnothing\n')
    asked = settings(tmp_path, tokenizer_file, Source(files=(str(file),)))
    found = dry_run(plan_job(asked))
    assert (found.rejected, found.refused) == (1, (str(file),))
    lenient = replace(asked, limits=Limits(bad_fraction=0.5))
    assert dry_run(plan_job(lenient)).refused == ()


def test_nothing_at_all(tmp_path: Path, tokenizer_file: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    asked = settings(tmp_path, tokenizer_file, Source(files=(str(tmp_path / "a.jsonl"),)))
    found = dry_run(plan_job(asked))
    assert (found.documents, found.tokens, found.kept) == (0, 0, 0)
