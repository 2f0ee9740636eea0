"""Emit: one shard, gathered from the tokens of all units. A unit holds the shard's four files.

`finish` moves the files to the output folder; the record keeps what the manifest says of them.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.data.shards.names import shard_name
from meshwright.data.shards.writing import Form, write_shard
from meshwright.data.stages.arrange import by_unit, column_name, shards_of
from meshwright.data.work.keys import key_of, keys_read

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.data.pack.rows import Column
    from meshwright.data.stages.layout import Job
    from meshwright.data.work.store import Store


def emit_units(job: Job) -> Mapping[int, int]:
    """The shards, with the tokens of each; asked when `arrange` is done."""
    return {
        number: max(1, int(job.store.column("arrange", 0, column_name(number))["length"].sum()))
        for number in range(len(shards_of(job.store)))
    }


def key_emit(job: Job, number: int) -> str:
    """What a shard is made from: how it is packed, and the whole arrangement."""
    return key_of("emit", number, job.build.pack, keys_read(job.store, "arrange", [0]))


def run_emit(job: Job, number: int) -> None:
    """Makes one shard."""
    split, place = shards_of(job.store)[number]
    vocabulary = (job.store.record("arrange", 0) or {})["vocabulary"]
    dtype = np.dtype(vocabulary["dtype"])
    form = Form(pack=job.build.pack, seed=job.build.seed, dtype=dtype, pad_id=vocabulary["pad_id"])
    tokens = TokensOfUnits(job.store, job.store.column("arrange", 0, column_name(number)), dtype)
    with job.store.writing("emit", number, key=key_emit(job, number)) as draft:
        name = shard_name(split, place)
        shard = write_shard(draft.folder / name, tokens, form=form, number=number)
        draft.facts.update(name=name, split=split, shard=asdict(shard))


class TokensOfUnits:
    """The documents of a shard, wherever in the token units they lie.

    Each unit is opened once for every call, and read piece by piece into place.
    """

    def __init__(self, store: Store, placed: NDArray[Any], dtype: np.dtype[Any]) -> None:
        self.store = store
        self.placed = placed
        self.dtype = dtype

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each document [documents]."""
        return np.ascontiguousarray(self.placed["length"])

    def fill(
        self, out: NDArray[Any], places: Column, pieces: tuple[Column, Column, Column]
    ) -> None:
        """Reads pieces (document, offset, length) into `out`, each from its place on."""
        documents, offsets, lengths = pieces
        if not len(documents):
            return
        starts = self.placed["start"][documents] + offsets
        target, size = out.view(np.uint8).data, self.dtype.itemsize
        for unit, here in by_unit(self.placed["unit"][documents]):
            stretches = zip(
                (places[here] * size).tolist(),
                (starts[here] * size).tolist(),
                (lengths[here] * size).tolist(),
                strict=True,
            )
            with _TokenFile(self.store, unit) as file:
                for place, start, length in stretches:
                    file.read(target[place : place + length], start)

    def at(self, documents: Column, offsets: Column) -> NDArray[Any]:
        """One token of each of these documents."""
        found = np.empty(len(documents), dtype=self.dtype)
        ones = np.ones(len(documents), dtype=np.int64)
        self.fill(found, np.arange(len(documents)), (documents, offsets, ones))
        return found


class _TokenFile:
    """The tokens of one unit, opened for reading stretches of bytes."""

    def __init__(self, store: Store, unit: int) -> None:
        self.path: Path = store.folder("tokenize", unit) / "tokens.npy"

    def __enter__(self) -> _TokenFile:
        self.descriptor = os.open(self.path, os.O_RDONLY)
        head = os.pread(self.descriptor, 10, 0)  # magic, version, length of the header
        self.data = 10 + int.from_bytes(head[8:10], "little")
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self.descriptor)

    def read(self, out: memoryview, start: int) -> None:
        """Fills `out` from the byte `start` of the tokens on."""
        if os.preadv(self.descriptor, [out], self.data + start) != len(out):
            raise MeshwrightError(
                f"{str(self.path)!r} is shorter than it was when it was written",
                hint="remove the folder it is in and run the build again",
            )
