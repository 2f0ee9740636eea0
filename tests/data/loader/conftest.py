"""Folders of shards with tokens that say where they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshwright.base.noun import dataclass
from meshwright.data.pack.strategy import layout_of
from meshwright.data.settings import Pack
from meshwright.data.shards.manifest import Manifest, Packed, ShardRecord, Vocabulary, encoded
from meshwright.data.shards.names import MANIFEST, shard_name
from meshwright.data.shards.writing import Form, TokensInMemory, write_shard

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


def write_folder(path: Path, recipe: Recipe) -> Path:
    """Documents of random length; token t of document d of shard s is distinct in its shard."""
    path.mkdir(parents=True)
    pack = Pack(seq_len=recipe.seq_len, strategy=recipe.strategy, layout=recipe.layout)
    form = Form(pack=pack, seed=recipe.seed, dtype=np.dtype(recipe.dtype), pad_id=PAD)
    rng = np.random.default_rng(recipe.seed)
    splits = [("train", number, recipe.documents) for number in range(recipe.shards)]
    splits += [("valid", 0, recipe.valid)] if recipe.valid else []
    records = []
    for number, (split, inside, documents) in enumerate(splits):
        lengths = rng.integers(1, recipe.longest, documents).astype(np.int32)
        tokens = np.arange(lengths.sum()) + 2
        tokens[np.cumsum(lengths) - 1] = EOD
        memory = TokensInMemory(tokens=tokens.astype(recipe.dtype), lengths=lengths)
        name = shard_name(split, inside)
        made = write_shard(path / name, memory, form=form, number=number)
        counts = ("documents", "tokens", "rows", "pieces", "cost", "largest_cost")
        values = {count: getattr(made, count) for count in counts}
        records.append(ShardRecord(name=name, split=split, **values))
    manifest = Manifest(
        tool="test",
        seed=recipe.seed,
        vocabulary=Vocabulary(
            digest=recipe.tokenizer, vocab_size=60000, eod_id=EOD, pad_id=PAD, dtype=recipe.dtype
        ),
        packed=Packed(
            seq_len=recipe.seq_len,
            strategy=recipe.strategy,
            layout=layout_of(recipe.strategy, recipe.layout),
        ),
        shards=records,
    )
    (path / MANIFEST).write_bytes(encoded(manifest))
    return path


@pytest.fixture
def make_folder(tmp_path):
    """make_folder("name", documents=...) -> its path."""
    return lambda name="shards", **recipe: write_folder(tmp_path / name, Recipe(**recipe))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("folder") / "shards", Recipe())


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory):
    return write_folder(
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
    return write_folder(tmp_path_factory.mktemp("any") / "shards", recipe)
