"""Whether what a folder says of its documents adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.needs import need
from meshwright.data.shards.integrity import REPORT, finding
from meshwright.data.shards.ledger import COLUMNS as LEDGER_COLUMNS
from meshwright.data.shards.ledger import Ledger, wrong_facts
from meshwright.data.shards.names import DOCUMENTS, ENDS, MANIFEST, SPLITS
from meshwright.data.shards.tables import COLUMNS, schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.base.finding import Finding
    from meshwright.data.shards.folder import Folder
    from meshwright.data.shards.manifest import Manifest


def check_sums(folder: Path, manifest: Manifest) -> list[Finding]:
    """Sums inside the manifest."""
    return [finding(folder / MANIFEST, text, hint=REPORT) for text in _wrong_sums(manifest)]


def _wrong_sums(manifest: Manifest) -> Iterator[str]:
    yield from _unpaired(manifest)
    if manifest.inputs:
        read, told = sum(i.documents for i in manifest.inputs), sum(manifest.counts.values())
        if read != told:
            yield f"counts {read:,} documents read, {told:,} kept and dropped"
    for split in SPLITS if manifest.sources else ():
        for name in ("documents", "tokens"):
            made = sum(getattr(shard, name) for shard in manifest.of_split(split))
            told = sum(getattr(source, f"{split}_{name}") for source in manifest.sources)
            if made != told:
                yield f"counts {made:,} {name} in {split} shards, {told:,} by source"
    if manifest.packed is not None and manifest.packed.strategy in manifest.strategies:
        packing = manifest.strategies[manifest.packed.strategy]
        rows = sum(shard.rows for shard in manifest.shards)
        padding = rows * manifest.packed.seq_len - sum(shard.tokens for shard in manifest.shards)
        if (packing.rows, packing.padding) != (rows, padding):
            yield f"counts {rows:,} rows in shards, {packing.rows:,} by strategy"


def _unpaired(manifest: Manifest) -> Iterator[str]:
    """Shards without files, and files without a shard."""
    wanted = {f"{shard.name}{end}" for shard in manifest.shards for end in ENDS}
    if len(wanted) != len(ENDS) * len(manifest.shards):
        yield "names a shard twice"
    for name in sorted(wanted - set(manifest.files)):
        yield f"has a shard without its {name}"
    for name in sorted(set(manifest.files) - wanted):
        if name.endswith(ENDS):
            yield f"has {name}, which belongs to no shard"


def check_facts(folder: Path, manifest: Manifest) -> list[Finding]:
    """What the manifest says that other files, which are sound, say too."""
    complaints = wrong_facts(folder, manifest)
    return [finding(folder / MANIFEST, text, hint=REPORT) for text in complaints]


def check_documents(folder: Path, manifest: Manifest, splits: dict[str, Folder]) -> list[Finding]:
    """documents.parquet against the manifest and the shards. `splits` are the sound ones."""
    arrow = need("pyarrow", "reading documents.parquet")
    path = folder / DOCUMENTS
    try:
        complaints = list(_wrong_documents(path, manifest, _Lengths(splits)))
    except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        complaints = [f"cannot be read: {error}"]
    return [finding(path, text, hint=REPORT) for text in complaints]


def _wrong_documents(path: Path, manifest: Manifest, lengths: _Lengths) -> Iterator[str]:
    """Reads the table once, batch by batch."""
    parquet = need("pyarrow.parquet", "reading documents.parquet")
    counts: dict[str, int] = {}
    copies = 0
    with parquet.ParquetFile(path) as table:
        if not table.schema_arrow.equals(schema(COLUMNS)):
            yield "has other columns than a build writes"
            return
        ledger = Ledger(manifest)
        asked = [*LEDGER_COLUMNS, "shard", "document", "tokens", "copies"]
        for batch in table.iter_batches(columns=asked):
            for reason in batch.column("reason").value_counts().to_pylist():
                name = reason["values"]
                counts[name] = counts.get(name, 0) + reason["counts"]
            copies += sum(batch.column("copies").to_pylist())
            yield from lengths.wrong(batch)
            ledger.add(batch)
    yield from ledger.wrong()
    if {name: count for name, count in counts.items() if count} != {
        name: count for name, count in manifest.counts.items() if count
    }:
        yield f"has {sum(counts.values()):,} documents with other reasons than the manifest says"
    placed = sum(shard.documents for shard in manifest.shards)
    if copies != placed:
        yield f"places {copies:,} documents where the shards have {placed:,}"


class _Lengths:
    """The documents of the shards: their lengths, and whether a row of the table named them.

    Takes 9 bytes of memory a document.
    """

    def __init__(self, splits: dict[str, Folder]) -> None:
        self.lengths: dict[str, NDArray[np.int64]] = {}
        self.seen: dict[str, NDArray[np.bool_]] = {}
        for folder in splits.values():
            for number, record in enumerate(folder.records):
                pieces = folder.shard(number).plan.pieces
                sizes = np.bincount(pieces["document"], pieces["length"], record.documents)
                self.lengths[record.name] = sizes.astype(np.int64)
                self.seen[record.name] = np.zeros(len(sizes), dtype=np.bool_)

    def wrong(self, batch: Any) -> Iterator[str]:
        """What a batch of rows says that the shards do not."""
        shards = batch.column("shard").to_numpy(zero_copy_only=False)
        columns = {
            name: batch.column(name).fill_null(-1).to_numpy() for name in ("document", "tokens")
        }
        for shard in sorted({name for name in shards if name is not None}):
            if shard not in self.lengths:
                continue
            here = shards == shard
            documents, tokens = columns["document"][here], columns["tokens"][here]
            yield from self._wrong(shard, documents, tokens)

    def _wrong(
        self, shard: str, documents: NDArray[np.int32], tokens: NDArray[np.int32]
    ) -> Iterator[str]:
        lengths, seen = self.lengths[shard], self.seen[shard]
        if (documents < 0).any() or (documents >= len(lengths)).any():
            yield f"places a document in {shard} that is not there"
            return
        if (lengths[documents] != tokens).any():
            yield f"tells another length of a document in {shard} than it has"
        if seen[documents].any() or len(np.unique(documents)) != len(documents):
            yield f"places two documents at the same place in {shard}"
        seen[documents] = True
