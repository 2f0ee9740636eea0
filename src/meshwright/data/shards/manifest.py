"""manifest.json: what a folder of shards holds, how it was made, and the digest of every file.

The manifest is written in one way only (sorted keys, fixed indentation) and holds a digest of
itself, so that any change of it shows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.data.needs import need
from meshwright.data.ranges import MOST_TOKENS
from meshwright.data.shards.names import MANIFEST, WORK, is_safe, is_shard

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
LARGEST_BYTES = 512 << 20
_BUILD = "meshwright data build makes such a folder"
_GO_ON = "run the command of the build again: it goes on where it was"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of the folder: its size, and its 128-bit xxh3 in hexadecimal."""

    bytes: int  # its size
    xxh3_128: str  # in hexadecimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The tokenizer: `digest` covers vocabulary, merges and added tokens."""

    digest: str  # of vocabulary, merges and added tokens
    vocab_size: int  # ids, added tokens included
    eod_id: int  # behind each document
    pad_id: int  # fills up rows
    dtype: str  # of the ids in .bin: "<u2" or "<i4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """How rows were made."""

    seq_len: int  # tokens of a row
    strategy: str  # concatenate, best-fit, padded
    layout: str  # "documents" or "rows", never "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """One shard. `cost` is the sum over all rows, `largest_cost` that of the costliest."""

    name: str  # train-00000: its files begin so
    split: str  # train, valid
    documents: int  # repeats counted
    tokens: int  # padding left out
    rows: int  # of .rows.npy
    pieces: int  # of .pieces.npy
    cost: int  # sum over its rows
    largest_cost: int  # that of the costliest row


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """A file that was read. `content` is a digest of what was read and kept of it, in order."""

    path: str  # as it was found; "-" = standard input
    source: str  # by name
    format: str  # jsonl, parquet, text
    compression: str  # gz, zst; "" = none
    bytes: int  # as stored
    documents: int  # that could be read
    repaired: int  # of these, text that was not UTF-8: bytes of it became U+FFFD
    content: str  # digest of what was read and kept of it, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A source: what was kept of it, and what of that is in the shards, repeats counted."""

    name: str  # as in the settings
    weight: float | None  # likewise
    documents: int  # kept, with tokens
    tokens: int  # of these, once each
    text_bytes: int  # of these, cleaned
    train_documents: int  # in the shards, repeats counted
    train_tokens: int  # likewise
    valid_documents: int  # in the shards for validation
    valid_tokens: int  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A dropped document: where it was read, and how its text begins."""

    file: str  # that it was read from
    line: int  # as in documents.parquet
    excerpt: str  # how its text begins, as it was when it was dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A kept document and how many were dropped as its duplicates."""

    file: str  # of the document that is kept
    line: int  # likewise
    duplicates: int  # that were dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRecord:
    """What a packing strategy makes, or would make, of the documents in the shards."""

    rows: int  # of seq_len tokens
    padding: int  # tokens
    cut: int  # documents in more than one row


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All of manifest.json. `counts` has documents by reason, "" for those kept."""

    format: int = FORMAT  # another is not read
    tool: str  # "meshwright" and its version
    digest: str = ""  # of the manifest itself, taken while this is ""
    libraries: dict[str, str] = field(default_factory=dict)  # versions of those that took part
    settings: dict[str, Any] = field(default_factory=dict)  # all, but where the output lies
    seed: int = 0  # of the settings
    vocabulary: Vocabulary | None = None  # the tokenizer; null where the build stops at text
    packed: Packed | None = None  # how rows were made; likewise
    counts: dict[str, int] = field(default_factory=dict)  # documents by reason, "" = kept
    facts: dict[str, int] = field(default_factory=dict)  # further counts: rejected, repaired
    masked: dict[str, int] = field(default_factory=dict)  # personal data by kind
    inputs: list[InputRecord] = field(default_factory=list)  # every file that was read
    sources: list[SourceRecord] = field(default_factory=list)  # what each gave
    examples: dict[str, list[Example]] = field(default_factory=dict)  # by reason
    clusters: list[Cluster] = field(default_factory=list)  # the largest
    strategies: dict[str, StrategyRecord] = field(default_factory=dict)  # all three, compared
    shards: list[ShardRecord] = field(default_factory=list)  # in order
    files: dict[str, File] = field(default_factory=dict)  # of the folder but this one, by name

    def of_split(self, split: str) -> list[ShardRecord]:
        """The shards of "train" or "valid", in order."""
        return [shard for shard in self.shards if shard.split == split]


def encoded(manifest: Manifest) -> bytes:
    """The only way to write a manifest, its digest set."""
    return _text(replace(manifest, digest=digest(manifest)))


def digest(manifest: Manifest) -> str:
    """What `Manifest.digest` must be."""
    text = _text(replace(manifest, digest=""))
    return str(need("xxhash", "checking manifest.json").xxh3_128_hexdigest(text))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; InvalidInput when there is none, or it was changed."""
    path = folder / MANIFEST
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise _wrong(path, "is no file")
        if path.stat().st_size > LARGEST_BYTES:
            raise _wrong(path, "is larger than any manifest")
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and (folder / WORK).is_dir():
            raise _wrong(path, "is not there yet: the build is not finished", hint=_GO_ON) from None
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise _wrong(path, reason, hint=_BUILD) from None
    return decoded(text, path)


def decoded(text: bytes, path: Path) -> Manifest:
    """A manifest from its bytes; InvalidInput when a build did not write them like that."""
    try:
        found = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse_other_version(text, path, str(error))
        raise _wrong(path, f"is no manifest: {error}") from None
    if found.format != FORMAT:
        raise _wrong(path, f"is of format {found.format}; this version reads {FORMAT}")
    if _text(found) != text:
        _refuse_other_version(text, path, "it has fields that are unknown here, or lacks some")
    if _text(found) != text or digest(found) != found.digest:
        raise _wrong(path, "was changed after it was written: its digest does not fit")
    if complaint := _complaint(found):
        raise _wrong(path, complaint)
    return found


def _refuse_other_version(text: bytes, path: Path, reason: str) -> None:
    """InvalidInput for a manifest that is whole in itself: it was made otherwise, not changed."""
    try:
        raw = json.loads(text)
        is_same = _spelled(raw) == text
        told, raw["digest"] = raw["digest"], ""
        whole = _spelled(raw)
    except (ValueError, LookupError, TypeError, RecursionError):
        return
    if is_same and need("xxhash", "hashing shards").xxh3_128_hexdigest(whole) == told:
        made = f"was made by another version ({shown(raw.get('tool'))}): {reason}"
        raise _wrong(path, made, hint="build the folder again, or read it with that version")


def _complaint(found: Manifest) -> str:
    """What no build writes and a reader could stumble over; "" for nothing."""
    vocabulary, packed = found.vocabulary, found.packed
    if vocabulary is not None:
        if vocabulary.dtype not in ("<u2", "<i4"):
            return f"names the type {vocabulary.dtype!r}; ids are <u2 or <i4"
        if not 0 <= vocabulary.pad_id < vocabulary.vocab_size <= 2**31:
            return f"has pad id {vocabulary.pad_id} of {vocabulary.vocab_size} ids"
    if packed is not None:
        if not 0 < packed.seq_len <= MOST_TOKENS:
            return f"has rows of {packed.seq_len} tokens"
        if packed.layout not in ("documents", "rows"):
            return f"has the layout {packed.layout!r}; documents and rows are known"
    for shard in found.shards:
        if not is_shard(shard.name, shard.split):
            return f"names a shard {shard.name!r} of {shard.split!r}"
        if min(shard.documents, shard.tokens, shard.rows, shard.pieces) < 0:
            return f"counts below 0 in {shard.name}"
    unsafe = [name for name in found.files if not is_safe(name)]
    return f"names {unsafe[0]!r}, which no build writes into its folder" if unsafe else ""


def _text(manifest: Manifest) -> bytes:
    return _spelled(asdict(manifest))


def _spelled(manifest: dict[str, Any]) -> bytes:
    return (json.dumps(manifest, sort_keys=True, indent=1) + "\n").encode()


def _wrong(path: Path, reason: str, *, hint: str = "build the folder again") -> InvalidInput:
    return InvalidInput([Finding(message=f"{MANIFEST} {reason}", file=str(path), hint=hint)])
