"""Arrange: which documents the shards hold, and in which order. A single unit.

It holds `documents-00000` and following, one column of `layout.PLACED` for each shard, those of
training before those of validation, and a copy of the tokenizer. Takes about 32 bytes of memory
for each document that has tokens, whatever its length: 32 GB for a thousand million.

A document is held out for validation by the hash of its cleaned text alone, so that it stays on its
side when other data, another seed or other weights come; equal texts are on the same side.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import InvalidInput
from meshwright.base.noun import dataclass
from meshwright.data.documents import bounds_of
from meshwright.data.pack.mixing import Stock, chosen, quotas
from meshwright.data.shards.names import SPLITS, TOKENIZER
from meshwright.data.shuffle import shuffle
from meshwright.data.stages.layout import PLACED
from meshwright.data.stages.scanned import scanned
from meshwright.data.work.keys import key_of, keys_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from meshwright.data.documents import Mask
    from meshwright.data.pack.rows import Column
    from meshwright.data.stages.layout import Job
    from meshwright.data.tokens.tokenizer import Tokenizer
    from meshwright.data.work.store import Draft, Store

_BLOCK = 1 << 22  # documents placed at once


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tokenized:
    """Every document that has tokens, in the order of the input, numbered through."""

    lengths: NDArray[np.int32]
    starts: Column  # in the tokens of its unit
    source: NDArray[np.int16]
    is_valid: Mask
    text_bytes: Column  # of each source
    units: Column  # [units]: the number of each
    bounds: Column  # [units + 1]: the documents of each


def key_arrange(job: Job, _number: int) -> str:
    """What the unit is made from: weights, split, seed, size of shards, and all token units."""
    build = job.build
    weights = [source.weight for source in build.sources]
    read = keys_read(job.store, "tokenize", [unit.number for unit in job.units])
    settings = [build.mix, build.seed, build.validation, build.output.shard_tokens]
    source_of = [found.source for found in job.inputs]
    return key_of("arrange", weights, source_of, settings, read)


def run_arrange(job: Job, number: int) -> None:
    """Places every document. InvalidInput where the sources cannot be mixed as wanted."""
    from meshwright.data.stages.tokenize import tokenizer_of

    assert job.build.tokenizer is not None
    tokenizer = tokenizer_of(job.build.tokenizer, job.digests)
    found = _tokenized(job)
    valid, train = np.flatnonzero(found.is_valid), _training(job, found)
    with job.store.writing("arrange", number, key=key_arrange(job, number)) as draft:
        tokenizer.save(draft.folder / TOKENIZER)
        written = 0
        shards: dict[str, int] = {}
        for split, items in zip(SPLITS, (train, valid), strict=True):
            order = shuffle(items, seed=job.build.seed, purpose=split)
            cuts = _cuts(found.lengths, order, shard_tokens=job.build.output.shard_tokens)
            for first, last in pairwise(cuts):
                _write_shard(draft, written, found=found, order=order[first:last])
                written += 1
            shards[split] = len(cuts) - 1
        draft.facts.update(
            shards=shards,
            sources=_sources(job, found, train),
            vocabulary=_vocabulary(tokenizer),
        )


def _tokenized(job: Job) -> _Tokenized:
    """Reads what is needed of every token unit."""
    numbers = [unit.number for unit in job.units]
    counts = [len(job.store.column("tokenize", number, "lengths")) for number in numbers]
    bounds = bounds_of(np.array(counts, dtype=np.int64))
    found = _Tokenized(
        lengths=np.empty(bounds[-1], dtype=np.int32),
        starts=np.empty(bounds[-1], dtype=np.int64),
        source=np.empty(bounds[-1], dtype=np.int16),
        is_valid=np.empty(bounds[-1], dtype=np.bool_),
        text_bytes=np.zeros(len(job.build.sources), dtype=np.int64),
        units=np.array(numbers, dtype=np.int64),
        bounds=bounds,
    )
    source_of = np.array([entry.source for entry in job.inputs], dtype=np.int16)
    for place, number in enumerate(numbers):
        here = slice(bounds[place], bounds[place + 1])
        unit = scanned(job, number)
        survivors = unit.survivors[job.store.column("tokenize", number, "survivors")]
        found.lengths[here] = job.store.column("tokenize", number, "lengths")
        found.starts[here] = bounds_of(found.lengths[here])[:-1]
        found.source[here] = source_of[unit.documents["input"][survivors["row"]]]
        found.is_valid[here] = held_out(survivors["key"], job.build.validation)
        np.add.at(found.text_bytes, found.source[here], survivors["stop"] - survivors["start"])
    return found


def held_out(keys: NDArray[np.uint64], share: float) -> Mask:
    """Which documents are for validation, by the 128-bit hashes [n, 2] of their text."""
    limit = int(share * 2**64)
    return keys[:, 0] < np.uint64(limit) if limit < 2**64 else np.ones(len(keys), np.bool_)


def _training(job: Job, found: _Tokenized) -> Column:
    """The documents to train on, each as often as its source's weight wants it."""
    sources = job.build.sources
    if all(source.weight is None for source in sources):
        return np.flatnonzero(~found.is_valid)
    stocks = [
        Stock(
            name=source.name,
            weight=source.weight,
            tokens=_tokens(found.lengths, ~found.is_valid & (found.source == number)),
        )
        for number, source in enumerate(sources)
    ]
    try:
        wanted = quotas(stocks, job.build.mix)
    except InvalidInput as error:
        raise _with_losses(job, stocks, error) from None
    parts = [np.zeros(0, dtype=np.int64)]
    for number, quota in enumerate(wanted):
        mine = np.flatnonzero(~found.is_valid & (found.source == number))
        order = shuffle(mine, seed=job.build.seed, purpose="repeat", number=number)
        parts.append(chosen(order, found.lengths, quota))
    return np.concatenate(parts)


def _with_losses(job: Job, stocks: list[Stock], error: InvalidInput) -> InvalidInput:
    """The error, with what became of the documents of the sources that it names."""
    from meshwright.data.stages.losses import losses_note

    first, *others = error.findings
    notes = [
        losses_note(job, number)
        for number, stock in enumerate(stocks)
        if not stock.tokens or f" {stock.name} " in first.message
    ]
    told = first.replace(notes=(*first.notes, *notes))
    return InvalidInput([told, *others], hint=error.hint)


def _tokens(lengths: NDArray[np.int32], chosen: Mask) -> int:
    return int(np.sum(lengths, where=chosen, dtype=np.int64))


def _cuts(lengths: NDArray[np.int32], order: Column, *, shard_tokens: int) -> list[int]:
    """Where shards begin and end: as many as come nearest to `shard_tokens`, of equal tokens."""
    ends = np.cumsum(lengths[order], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    count = max(1, round(total / shard_tokens))
    wanted = [total * number // count for number in range(1, count)]
    cuts = {0, len(order), *np.searchsorted(ends, wanted, side="right").tolist()}
    return sorted(cuts)


def _write_shard(draft: Draft, number: int, *, found: _Tokenized, order: Column) -> None:
    """The column of one shard."""
    placed = np.zeros(len(order), dtype=PLACED)
    for first in range(0, len(order), _BLOCK):
        documents = order[first : first + _BLOCK]
        part = placed[first : first + _BLOCK]
        place = np.searchsorted(found.bounds, documents, side="right") - 1
        part["unit"] = found.units[place]
        part["index"] = documents - found.bounds[place]
        part["start"] = found.starts[documents]
        part["length"] = found.lengths[documents]
    draft.write_column(column_name(number), placed)


def by_unit(units: NDArray[np.integer]) -> Iterator[tuple[int, Column]]:
    """Each unit that occurs, and the places where it does."""
    order = np.argsort(units, kind="stable")
    ordered = units[order]
    borders = np.flatnonzero(np.diff(ordered)) + 1
    for first, last in pairwise([0, *borders.tolist(), len(units)]):
        if first < last:
            yield int(ordered[first]), order[first:last]


def _sources(job: Job, found: _Tokenized, train: Column) -> list[dict[str, Any]]:
    """Documents and tokens of each source: kept, in training, in validation."""
    count = len(job.build.sources)
    documents, tokens = (np.zeros(count, dtype=np.int64) for _ in range(2))
    for first in range(0, len(train), _BLOCK):
        part = train[first : first + _BLOCK]
        weights = found.lengths[part].astype(np.float64)
        documents += np.bincount(found.source[part], minlength=count)
        tokens += np.bincount(found.source[part], weights, count).astype(np.int64)
    rows = []
    for number in range(count):
        mine = found.source == number
        rows.append(
            {
                "documents": int(np.count_nonzero(mine)),
                "tokens": _tokens(found.lengths, mine),
                "text_bytes": int(found.text_bytes[number]),
                "train_documents": int(documents[number]),
                "train_tokens": int(tokens[number]),
                "valid_documents": int(np.count_nonzero(mine & found.is_valid)),
                "valid_tokens": _tokens(found.lengths, mine & found.is_valid),
            }
        )
    return rows


def _vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the shards have to say of the tokenizer."""
    return {
        "digest": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
        "eod_id": tokenizer.eod_id,
        "pad_id": tokenizer.pad_id,
        "dtype": np.dtype(tokenizer.dtype).newbyteorder("<").str,
    }


# What later stages ask


def column_name(number: int) -> str:
    """The column with the documents of a shard."""
    return f"documents-{number:05d}"


def shards_of(store: Store) -> list[tuple[str, int]]:
    """Split and number in it of every shard, once arranged; its place here is its unit of emit."""
    record: Mapping[str, Any] = store.record("arrange", 0) or {}
    counts = record.get("shards", {})
    return [(split, number) for split in SPLITS for number in range(counts.get(split, 0))]
