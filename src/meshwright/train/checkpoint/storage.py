"""Writing and reading checkpoints through torch.distributed.checkpoint (DCP), without a pickle.

DCP plans who writes and reads which block; planner, writer and reader here are built on its public
interfaces alone. Its own file writer leaves a pickled `.metadata` and pickled tensors, and its
reader unpickles the first without restriction: neither is used. Every rank writes one safetensors
file, rank 0 the index (JSON); nothing that is read from a folder is ever unpickled. (Ranks of one
run do send each other plans as pickles, through their process group and not through files.)
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.distributed.checkpoint import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    StorageReader,
    StorageWriter,
)
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from meshwright.base.noun import dataclass
from meshwright.data.shards.hashed import creating
from meshwright.train import safetensors
from meshwright.train.checkpoint.index import INDEX, Entry, Index, Piece, key_of, name_of, type_of
from meshwright.train.checkpoint.manifest import File
from meshwright.train.safetensors import Outline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor
    from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem, SavePlanner

    from meshwright.train.checkpoint.state import Group, Value
    from meshwright.train.model.share import Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A tensor's blocks on this rank, copied to the host."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    blocks: tuple[tuple[tuple[int, ...], Tensor], ...]  # where it starts in the whole, its values


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What a rank has to say beside tensors."""

    values: dict[str, Value]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a block went."""

    file: str
    digest: File


# Writing


class SavePlanning(DefaultSavePlanner):
    """DCP's planner, fed with blocks: drops replicas, balances them, checks that nothing lacks."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.own_notes = notes
        self.notes: list[Notes] = []  # of all ranks, on the coordinator

    def set_up_planner(
        self,
        state_dict: Any,
        storage_meta: Any = None,  # noqa: ARG002 - DCP's signature
        is_coordinator: bool = False,
    ) -> None:
        """Takes tensors as `Staged` by name."""
        self.is_coordinator = is_coordinator
        self.blocks = {
            MetadataIndex(name, start): block
            for name, staged in state_dict.items()
            for start, block in staged.blocks
        }
        self.staged: dict[str, Staged] = state_dict

    def create_local_plan(self) -> SavePlan:
        """Every block of this rank."""
        items = [
            _write_item(name, staged, start, block)
            for name, staged in self.staged.items()
            for start, block in staged.blocks
        ]
        self.plan = SavePlan(items, planner_data=self.own_notes)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """On the coordinator: each block once."""
        self.notes = [plan.planner_data for plan in all_plans]
        plans, metadata = super().create_global_plan(all_plans)
        return plans, metadata

    def resolve_data(self, write_item: WriteItem) -> Any:
        """The block."""
        return self.blocks[write_item.index]


def _write_item(name: str, staged: Staged, start: tuple[int, ...], block: Tensor) -> WriteItem:
    chunk = ChunkStorageMetadata(offsets=torch.Size(start), sizes=block.shape)
    return WriteItem(
        index=MetadataIndex(name, start),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=chunk,
            properties=TensorProperties(dtype=staged.dtype),
            size=torch.Size(staged.shape),
        ),
    )


class FolderWriter(StorageWriter):
    """One safetensors file a rank into `folder`; `finish` gets the index and the files' digests."""

    def __init__(self, folder: Path, finish: Callable[[Index, dict[str, File]], None]) -> None:
        self.folder = folder
        self.planner: SavePlanning | None = None
        self._finish = finish

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept from one save to the next."""

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """The coordinator makes the folder, before anyone writes into it."""
        if is_coordinator:
            self.folder.mkdir(parents=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Names the files."""
        return [
            SavePlan(plan.items, storage_data=f"rank-{rank:05d}.safetensors")
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Writes this rank's blocks, hashed on their way and flushed to the disk."""
        blocks = {item.index: planner.resolve_data(item) for item in plan.items}
        results: list[WriteResult] = []
        if blocks:
            with creating(self.folder / plan.storage_data) as file:
                outlines = {_key(i): _outline(block) for i, block in blocks.items()}
                safetensors.write(file, outlines, blocks.values())
            digest = File(bytes=file.written.bytes, xxh3_128=file.written.xxh3_128)
            stored = Stored(file=plan.storage_data, digest=digest)
            results = [WriteResult(i, block.nbytes, stored) for i, block in blocks.items()]
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator, once every rank has written."""
        stored = {r.index: r.storage_data for rank in results for r in rank}
        notes = self.planner.notes if self.planner else []
        index = Index(
            tensors={n: _entry(n, m, stored) for n, m in metadata.state_dict_metadata.items()},
            values={name: value for note in notes for name, value in note.values.items()},
        )
        files = {place.file: place.digest for place in stored.values()}
        with creating(self.folder / INDEX) as file:
            file.write(msgspec.json.encode(index))
        files[INDEX] = File(bytes=file.written.bytes, xxh3_128=file.written.xxh3_128)
        self._finish(index, files)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:  # noqa: ARG003 - DCP's signature
        """Used only where it is named."""
        return False


def _key(index: MetadataIndex) -> str:
    return key_of(index.fqn, tuple(index.offset or ()))


def _outline(block: Tensor) -> Outline:
    return Outline(dtype=name_of(block.dtype), shape=tuple(block.shape))


def _entry(name: str, metadata: TensorStorageMetadata, stored: dict[Any, Stored]) -> Entry:
    pieces = tuple(
        Piece(
            start=tuple(chunk.offsets),
            size=tuple(chunk.sizes),
            file=stored[MetadataIndex(name, chunk.offsets)].file,
        )
        for chunk in metadata.chunks
    )
    dtype = name_of(metadata.properties.dtype)
    return Entry(dtype=dtype, shape=tuple(metadata.size), pieces=pieces)


def sync(folder: Path) -> None:
    """Makes the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Reading


class LoadPlanning(DefaultLoadPlanner):
    """DCP's planner for blocks: which stored pieces make up which block of this rank."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(
        self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Takes, by name, what to fill: pairs of a box and a view of this rank's part."""
        self.metadata = metadata
        self.is_coordinator = is_coordinator
        self.wanted: dict[str, list[tuple[Box, Tensor]]] = state_dict
        self.blocks = {
            MetadataIndex(name, box.start): view
            for name, boxes in state_dict.items()
            for box, view in boxes
        }

    def create_local_plan(self) -> LoadPlan:
        """The pieces that this rank reads."""
        items: list[ReadItem] = []
        for name, boxes in self.wanted.items():
            assert self.metadata is not None  # DCP calls set_up_planner first
            entry = self.metadata.state_dict_metadata[name]
            chunks = [
                ChunkStorageMetadata(offsets=torch.Size(box.start), sizes=torch.Size(box.size))
                for box, _ in boxes
            ]
            items += create_read_items_for_chunk_list(name, entry, chunks)
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """As they are: every rank reads for itself."""
        return global_plan

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """Where the values of a piece belong."""
        view = self.blocks[MetadataIndex(read_item.dest_index.fqn, read_item.dest_index.offset)]
        slices = zip(read_item.dest_offsets, read_item.lengths, strict=True)
        return view[tuple(slice(o, o + n) for o, n in slices)]

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Nothing to do: the values are in place."""


class FolderReader(StorageReader):
    """Reads what `FolderWriter` wrote; the index has been read and checked already."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder = folder
        self.index = index

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index in DCP's words."""
        tensors = {name: _metadata(entry) for name, entry in self.index.tensors.items()}
        return Metadata(state_dict_metadata=tensors)  # type: ignore[arg-type, unused-ignore]

    def set_up_storage_reader(self, *_: Any, **__: Any) -> None:
        """Notes which file holds what."""
        self.files = {
            MetadataIndex(name, piece.start): piece.file
            for name, entry in self.index.tensors.items()
            for piece in entry.pieces
        }

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copies slices of the files into place."""
        from safetensors import safe_open

        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_file[self.files[item.storage_index]].append(item)
        for name, items in by_file.items():
            with safe_open(self.folder / name, framework="pt") as file:
                for item in items:
                    _read(file, item, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:  # noqa: ARG003 - DCP's signature
        """Used only where it is named."""
        return False


def _metadata(entry: Entry) -> TensorStorageMetadata:
    chunks = [
        ChunkStorageMetadata(offsets=torch.Size(p.start), sizes=torch.Size(p.size))
        for p in entry.pieces
    ]
    properties = TensorProperties(dtype=type_of(entry))
    return TensorStorageMetadata(properties=properties, size=torch.Size(entry.shape), chunks=chunks)


def _read(file: Any, item: ReadItem, planner: LoadPlanner) -> None:
    target = planner.resolve_tensor(item)
    key = _key(item.storage_index)
    if item.lengths:
        stored = file.get_slice(key)
        ranges = zip(item.storage_offsets, item.lengths, strict=True)
        target.copy_(stored[tuple(slice(o, o + n) for o, n in ranges)])
    else:
        target.copy_(file.get_tensor(key))
