"""What is read, and in which portions."""

from __future__ import annotations

from meshwright.base.noun import dataclass

UNIT_BYTES = 16 << 20  # of input in a unit, about; of the output it moves only row groups of text


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One file. `stamp` changes when its content does, as far as can be told (mtime, etag)."""

    path: str  # as found: a path or an fsspec URL
    source: int  # number of the `Source` that named it
    format: str  # jsonl, parquet, text
    compression: str  # "", gz, zst
    bytes: int  # as stored
    stamp: str
    documents: str = "file"  # of text: one per "file", "line" or "paragraph"
    earlier: str = ""  # another stamp that the same content had, when units were made from it

    @property
    def version(self) -> str:
        """What keys hold for the content: the stamp under which it was first read."""
        return self.earlier or self.stamp


@dataclass(frozen=True, slots=True)
class Span:
    """Part of an input: bytes for plain lines, row groups for parquet, else the whole (0, 1).

    In a sample `part` says which rows of the row groups, or which bytes of what a compressed input
    holds, from where to before where.
    """

    input: int
    start: int
    stop: int
    part: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A portion of work; the division depends on the inputs alone, never on who does the work."""

    number: int
    spans: tuple[Span, ...]
    bytes: int  # as stored, for progress
