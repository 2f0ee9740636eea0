"""Data of every kind: shards, files of Megatron, tokens made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshwright.data.settings import Pack
from meshwright.data.shards.assemble import write_folder
from meshwright.data.shards.indexed import writing
from meshwright.data.shards.manifest import Vocabulary

SEQ_LEN = 16


def documents(count: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 40, count)
    return [rng.integers(2, 250, n).astype("<u2") for n in lengths]


@pytest.fixture(scope="session")
def shards(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shards"
    splits = {"train": [documents(40, 0), documents(30, 1)], "valid": [documents(10, 2)]}
    vocabulary = Vocabulary(digest="a", vocab_size=256, eod_id=0, pad_id=1, dtype="<u2")
    pack = Pack(seq_len=SEQ_LEN, strategy="best-fit")
    write_folder(folder, splits, pack=pack, vocabulary=vocabulary, seed=0)
    return folder


@pytest.fixture(scope="session")
def megatron(tmp_path_factory) -> Path:
    prefix = tmp_path_factory.mktemp("data") / "corpus_text_document"
    parts = documents(50, 3)
    with writing(prefix, np.dtype("<u2")) as (writer, _):
        writer.append(np.concatenate(parts), np.array([len(part) for part in parts]))
    return prefix
