"""Parquet files of an output folder: the fate of every document, and the cleaned text."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from meshwright.data.needs import need
from meshwright.data.shards.hashed import digest_of, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from meshwright.data.shards.hashed import Written

COLUMNS: Mapping[str, str] = {  # of documents.parquet: one row for each document read
    "input": "string",  # file that it was read from
    "line": "int64",  # line, parquet row or document of a text file, from 1
    "id": "string",  # as the input names it, "" if it does not
    "bytes": "int64",  # UTF-8 as read
    "language": "string",  # "" where it was not asked
    "reason": "string",  # why it was dropped, "" if it was kept
    "measured": "float32",  # the figure that broke the rule of `reason`: share, count or score
    "test_text": "string",  # of a contaminated one: file, record and field of what it shares
    "duplicate_of_input": "string",  # of a duplicate: the earlier document that it repeats
    "duplicate_of_line": "int64",  # its line; null, as the one above, where there is none
    "similarity": "float32",  # of a duplicate: Jaccard, 1 if exact
    "shard": "string",  # of a kept one: where its tokens are, the first time
    "document": "int32",  # its number in the shard, as in its .pieces.npy
    "tokens": "int32",  # its EOD included
    "copies": "int32",  # how often it is in the shards
}
TEXT_COLUMNS: Mapping[str, str] = {  # of text-*.parquet: one row for each document kept
    "text": "large_string",  # cleaned
    "id": "string",  # the others as in documents.parquet
    "input": "string",  # likewise
    "line": "int64",  # likewise
    "shard": "string",  # likewise
    "document": "int32",  # likewise
}


def schema(columns: Mapping[str, str]) -> Any:
    """The schema of a table in pyarrow's words."""
    arrow = need("pyarrow", "writing parquet")
    return arrow.schema([(name, getattr(arrow, kind)()) for name, kind in columns.items()])


class Table:
    """A parquet file that is written row group by row group."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        self.written: Written | None = None  # once closed

    def append(self, columns: Mapping[str, Any]) -> None:
        """One row group, the same however its columns come in pieces."""
        arrow = need("pyarrow", "writing parquet")
        whole = arrow.table(dict(columns), schema=self.writer.schema).combine_chunks()
        self.writer.write_table(whole, row_group_size=max(1, len(whole)))


@contextlib.contextmanager
def writing_table(path: Path, columns: Mapping[str, str]) -> Iterator[Table]:
    """A new parquet file, which takes its place, flushed to the disk, when the block ends well."""
    parquet = need("pyarrow.parquet", "writing parquet")
    part = path.with_name(f"{path.name}.part")
    try:
        with parquet.ParquetWriter(
            part, schema(columns), compression="zstd", version="2.6", write_statistics=True
        ) as writer:
            table = Table(writer)
            yield table
        settle(part)
        table.written = digest_of(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
