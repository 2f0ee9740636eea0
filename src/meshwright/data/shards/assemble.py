"""Shards from tokens that someone else has made, in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright import __version__
from meshwright.data.pack.strategy import layout_of
from meshwright.data.shards.hashed import creating
from meshwright.data.shards.manifest import (
    File,
    Manifest,
    Packed,
    ShardRecord,
    StrategyRecord,
    Vocabulary,
    encoded,
)
from meshwright.data.shards.names import MANIFEST, shard_name
from meshwright.data.shards.writing import Form, TokensInMemory, write_shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.data.pack.strategy import Fill
    from meshwright.data.settings import Pack
    from meshwright.data.shards.writing import Shard


def write_folder(
    folder: Path,
    documents: Mapping[str, Sequence[Sequence[NDArray[Any]]]],
    *,
    pack: Pack,
    vocabulary: Vocabulary,
    seed: int = 0,
) -> Manifest:
    """A folder of shards from token arrays: split -> shards -> documents, each with its EOD."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype = np.dtype(vocabulary.dtype)
    form = Form(pack=pack, seed=seed, dtype=dtype, pad_id=vocabulary.pad_id)
    made: list[tuple[str, str, Shard]] = []
    for split, shards in documents.items():
        for number, arrays in enumerate(shards):
            name = shard_name(split, number)
            tokens = TokensInMemory(
                np.concatenate([np.zeros(0, dtype), *arrays]).astype(dtype),
                np.array([len(array) for array in arrays], dtype=np.int32),
            )
            shard = write_shard(folder / name, tokens, form=form, number=len(made))
            made.append((name, split, shard))
    manifest = replace(
        manifest_of(made),
        seed=seed,
        vocabulary=vocabulary,
        packed=Packed(
            seq_len=pack.seq_len,
            strategy=pack.strategy,
            layout=layout_of(pack.strategy, pack.layout),
        ),
    )
    with creating(folder / MANIFEST) as file:
        file.write(encoded(manifest))
    return manifest


def manifest_of(made: Sequence[tuple[str, str, Shard]]) -> Manifest:
    """What a manifest says of shards (name, split, what was written)."""
    kept = sum(shard.documents for _, _, shard in made)
    return Manifest(
        tool=f"meshwright {__version__}",
        counts={"": kept},
        strategies=strategies_of(shard.fills for _, _, shard in made),
        shards=[
            ShardRecord(
                name=name,
                split=split,
                documents=shard.documents,
                tokens=shard.tokens,
                rows=shard.rows,
                pieces=shard.pieces,
                cost=shard.cost,
                largest_cost=shard.largest_cost,
            )
            for name, split, shard in made
        ],
        files={
            name: File(bytes=file.bytes, xxh3_128=file.xxh3_128)
            for _, _, shard in made
            for name, file in shard.files.items()
        },
    )


def strategies_of(shards: Iterable[Mapping[str, Fill]]) -> dict[str, StrategyRecord]:
    """The packing strategies over all shards together; each shard tells of them by name."""
    total: dict[str, StrategyRecord] = {}
    for fills in shards:
        for name, fill in fills.items():
            before = total.get(name, StrategyRecord(rows=0, padding=0, cut=0))
            total[name] = StrategyRecord(
                rows=before.rows + fill.rows,
                padding=before.padding + fill.padding,
                cut=before.cut + fill.cut,
            )
    return total
