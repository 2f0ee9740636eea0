"""How inputs are divided into units shows in no byte of the output."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.data import building
from meshwright.data.building import build
from meshwright.data.settings import Build, Dedup, Output, Pack, Source, TokenizerSource
from meshwright.data.stages import account


def made(corpus: Path, tokenizer: Path, folder: Path) -> dict[str, bytes]:
    settings = Build(
        sources=(Source(files=(str(corpus / "*.jsonl"),), id_field="id"),),
        output=Output(folder=str(folder), text=True),
        tokenizer=TokenizerSource(file=str(tokenizer), check_documents=0),
        dedup=Dedup(near=True),
        pack=Pack(seq_len=128),
        validation=0.1,
    )
    build(settings, engine="inline")
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


def test_units_of_any_size_make_the_same_bytes(
    corpus: Path, tokenizer_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_ROWS", 64)  # several row groups
    whole = made(corpus, tokenizer_file, tmp_path / "whole")
    assert {"documents.parquet", "text-00000.parquet", "manifest.json"} <= whole.keys()
    monkeypatch.setattr(building, "UNIT_BYTES", 50_001)
    divided = made(corpus, tokenizer_file, tmp_path / "divided")
    assert [name for name in {*whole, *divided} if whole.get(name) != divided.get(name)] == []
