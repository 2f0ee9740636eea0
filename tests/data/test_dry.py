"""A dry run foretells what a build then does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from meshwright.data.building import build, plan_job
from meshwright.data.dry import PIECE_BYTES, dry_run, pieces_of
from meshwright.data.settings import Build, Output, Source, TokenizerSource


def settings(files: str, folder: Path, tokenizer: Path) -> Build:
    return Build(
        sources=(Source(files=(files,)),),
        tokenizer=TokenizerSource(file=str(tokenizer)),
        output=Output(folder=str(folder / "out")),
    )


@pytest.fixture(params=["plain", "gz"])
def raw(request, tmp_path: Path, texts: list[str]) -> str:
    """About 16 MB of documents that differ, and one in fifty that is empty."""
    lines = []
    for copy in range(40):
        for number, text in enumerate(texts):
            lines.append(json.dumps({"text": f"{copy} {text}" if number % 50 else ""}) + "\n")
    for part in range(4):
        content = "".join(lines[part::4]).encode()
        name = tmp_path / f"{part}.jsonl"
        if request.param == "gz":
            name.with_suffix(".jsonl.gz").write_bytes(gzip.compress(content, 6))
        else:
            name.write_bytes(content)
    return f"{tmp_path}/*.jsonl*"


def test_projection_is_near_the_build(raw: str, tmp_path: Path, tokenizer_file: Path) -> None:
    asked = settings(raw, tmp_path, tokenizer_file)
    found = dry_run(plan_job(asked))
    assert not (tmp_path / "out").exists()
    manifest = build(asked, engine="inline")
    total = sum(manifest.counts.values())
    assert found.documents == pytest.approx(total, rel=0.15)
    assert found.dropped["empty"] == pytest.approx(manifest.counts["empty"] / total, rel=0.3)
    tokens = sum(shard.tokens for shard in manifest.shards)
    assert found.tokens == pytest.approx(tokens, rel=0.15)
    size = sum(file.bytes for file in manifest.files.values())
    assert found.output_bytes == pytest.approx(size, rel=0.3)
    assert found.cpu_seconds > 0


def test_pieces_are_spread_and_the_same_each_time(tmp_path: Path, tokenizer_file: Path) -> None:
    for name in ("a", "b"):
        with (tmp_path / f"{name}.jsonl").open("wb") as file:
            file.truncate(60 * PIECE_BYTES)
    job = plan_job(settings(f"{tmp_path}/*.jsonl", tmp_path, tokenizer_file))
    pieces = pieces_of(job)
    assert pieces == pieces_of(job)
    assert len(pieces) == 8
    spans = [piece.spans[0] for piece in pieces]
    assert [span.input for span in spans] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert all(span.stop - span.start == PIECE_BYTES for span in spans)
    assert len({(span.input, span.start) for span in spans}) == 8
