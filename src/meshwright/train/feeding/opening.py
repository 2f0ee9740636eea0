"""Opens the source that a run names, for one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.loader.place import Place
from meshwright.data.shards.names import SPLITS
from meshwright.train.feeding.kinds import BLEND, INDEXED, SHARDS, kind_of, prefix_of
from meshwright.train.settings import SYNTHETIC

if TYPE_CHECKING:
    from meshwright.train.engine import Engine
    from meshwright.train.feeding.shards import Shards
    from meshwright.train.feeding.source import Source
    from meshwright.train.settings import Feed

TRAIN, VALIDATION = SPLITS
_OTHER_ROWS = 1 << 32  # added to the seed of synthetic rows that are to be unseen ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What rows must be: `vocab_size` ids at most, cut over cp as the engine does."""

    place: Place
    seq_len: int
    vocab_size: int
    hidden_size: int
    cp_slices: str
    seed: int


def shape_of(engine: Engine, *, global_batch_size: int, seed: int) -> Shape:
    """The rows of a rank of the engine.

    The loader knows first and last stage by their numbers; in a V-shaped schedule the first rank
    has both.
    """
    ends = {
        (True, True): (0, 1),
        (True, False): (0, 2),
        (False, True): (1, 2),
        (False, False): (1, 3),
    }
    pp_rank, pp_size = ends[engine.is_first, engine.is_last]
    mesh, blueprint = engine.mesh, engine.blueprint
    return Shape(
        place=Place(
            global_batch_size=global_batch_size,
            micro_batch_size=int(engine.plan.micro_batch_size),
            dp_rank=mesh.dp_rank,
            dp_size=mesh.dp_size,
            cp_rank=mesh.rank("cp"),
            cp_size=mesh.size("cp"),
            pp_rank=pp_rank,
            pp_size=pp_size,
        ),
        seq_len=blueprint.seq_len,
        vocab_size=int(blueprint.config.vocab_size),
        hidden_size=int(blueprint.config.hidden_size),
        cp_slices=blueprint.cp_slices,
        seed=seed,
    )


def open_training(feed: Feed, shape: Shape) -> Source:
    """The source that is trained on."""
    return _open(feed.source, feed, shape, split=TRAIN, shuffle=feed.shuffle)


def open_evaluation(feed: Feed, shape: Shape) -> Source:
    """The source that is evaluated on: the second one, or what the first holds out."""
    if feed.evaluation is None:
        return _open(feed.source, feed, shape, split=VALIDATION, shuffle=False)
    split = VALIDATION if feed.evaluation == feed.source else TRAIN
    return _open(feed.evaluation, feed, shape, split=split, shuffle=False)


def _open(source: str, feed: Feed, shape: Shape, *, split: str, shuffle: bool) -> Source:
    kind = kind_of(source)
    if kind in (SHARDS, BLEND):
        from meshwright.train.feeding.shards import Shards

        shards = Shards(
            source,
            shape.place,
            split=split,
            seed=shape.seed,
            shuffle=shuffle,
            document_masks=feed.document_masks,
            cp_slices=shape.cp_slices,
            hidden_size=shape.hidden_size,
        )
        return _checked_length(shards, source, shape)
    from meshwright.train.feeding.rows import Rows

    if kind == SYNTHETIC:
        from meshwright.train.feeding.synthetic import Synthetic

        seed = shape.seed + (_OTHER_ROWS if split == VALIDATION else 0)
        synthetic = Synthetic(seq_len=shape.seq_len, vocab_size=shape.vocab_size, seed=seed)
        return Rows(synthetic, shape.place, cp_slices=shape.cp_slices)
    prefix = prefix_of(source) if kind == INDEXED else None
    if prefix is None:
        raise MeshwrightError(
            f"{source!r} is text, which ranks do not cut into tokens",
            hint="`meshwright train --data TEXT --tokenizer FOLDER` builds shards of it first",
        )
    from meshwright.train.feeding.indexed import IndexedTable

    table = IndexedTable(
        prefix,
        seq_len=shape.seq_len,
        vocab_size=shape.vocab_size,
        seed=shape.seed,
        shuffle=shuffle,
        document_masks=feed.document_masks,
    )
    return Rows(table, shape.place, cp_slices=shape.cp_slices)


def _checked_length(shards: Shards, source: str, shape: Shape) -> Shards:
    """The shards, if their rows are as long as the plan's."""
    found = shards.seq_len
    if found != shape.seq_len:
        raise MeshwrightError(
            f"rows of {source!r} have {found:,} tokens, those of the plan {shape.seq_len:,}",
            hint=f"set workload.seq_len = {found}, or build the data with pack.seq_len = "
            f"{shape.seq_len}",
        )
    return shards
