"""Folders of shards, small enough to damage every byte of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_shards import documents, settings, texts, vocabulary, write_corpus

from meshwright.data.building import build
from meshwright.data.settings import Limits, Pack
from meshwright.data.shards.assemble import write_folder


@pytest.fixture(params=[("best-fit", "rows"), ("concatenate", "documents")], ids=lambda p: p[0])
def small(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two train shards and one for validation, of 25 documents altogether."""
    strategy, layout = request.param
    made = documents(25)
    write_folder(
        tmp_path / "shards",
        {"train": [made[:12], made[12:20]], "valid": [made[20:]]},
        pack=Pack(seq_len=16, strategy=strategy, layout=layout),
        vocabulary=vocabulary(),
        seed=1,
    )
    return tmp_path / "shards"


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built")
    corpus = write_corpus(root / "raw" / "a.jsonl", texts(200))
    with corpus.open("a", encoding="utf-8") as file:
        file.write("{not json\n")
    build(settings(root, [corpus], limits=Limits(bad_fraction=0.5)), workers=1, engine="inline")
    return root


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """The output folder of a whole build, to damage at will."""
    shutil.copytree(built_once / "out", tmp_path / "out")
    return tmp_path / "out"
