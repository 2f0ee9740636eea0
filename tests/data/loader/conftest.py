"""Folders of shards with tokens that say where they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshwright.base.noun import dataclass
from meshwright.data.settings import Pack
from meshwright.data.shards.assemble import write_folder
from meshwright.data.shards.manifest import Vocabulary

EOD, PAD = 0, 1


@dataclass(frozen=True, kw_only=True)
class Recipe:
    documents: int = 60
    shards: int = 3
    valid: int = 0  # documents of a validation shard
    seq_len: int = 32
    strategy: str = "best-fit"
    layout: str = "auto"
    dtype: str = "<u2"
    longest: int = 60
    tokenizer: str = "a"
    seed: int = 0


def write_shards(path: Path, recipe: Recipe) -> Path:
    """Documents of random length; token t of document d of shard s is distinct in its shard."""
    rng = np.random.default_rng(recipe.seed)
    splits = {"train": [recipe.documents] * recipe.shards, "valid": [recipe.valid]}
    write_folder(
        path,
        {
            split: [made_up(count, recipe, rng) for count in counts if count]
            for split, counts in splits.items()
        },
        pack=Pack(seq_len=recipe.seq_len, strategy=recipe.strategy, layout=recipe.layout),
        vocabulary=Vocabulary(
            digest=recipe.tokenizer, vocab_size=60000, eod_id=EOD, pad_id=PAD, dtype=recipe.dtype
        ),
        seed=recipe.seed,
    )
    return path


def made_up(count: int, recipe: Recipe, rng: np.random.Generator) -> list[np.ndarray]:
    lengths = rng.integers(1, recipe.longest, count).astype(np.int32)
    tokens = np.arange(lengths.sum()) + 2
    ends = np.cumsum(lengths)
    tokens[ends - 1] = EOD
    return np.split(tokens.astype(recipe.dtype), ends[:-1])


@pytest.fixture
def make_folder(tmp_path):
    """make_folder("name", documents=...) -> its path."""
    return lambda name="shards", **recipe: write_shards(tmp_path / name, Recipe(**recipe))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("folder") / "shards", Recipe())


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory):
    return write_shards(
        tmp_path_factory.mktemp("other") / "shards", Recipe(documents=25, shards=1, seed=5)
    )


@pytest.fixture(
    scope="session",
    params=[
        ("best-fit", "rows", "<u2"),
        ("best-fit", "documents", "<i4"),
        ("concatenate", "documents", "<u2"),
        ("padded", "documents", "<u2"),
        ("padded", "rows", "<u2"),
    ],
    ids="-".join,
)
def any_folder(request, tmp_path_factory):
    strategy, layout, dtype = request.param
    recipe = Recipe(strategy=strategy, layout=layout, dtype=dtype)
    return write_shards(tmp_path_factory.mktemp("any") / "shards", recipe)
