"""manifest.json: what a checkpoint is of, and the digest of every file in its folder.

It is written last, so a folder without one is unfinished. It holds a digest of itself: any change
of it shows. Digests tell torn and flipped files, not forged ones.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.data.needs import need
from meshwright.data.shards.hashed import digest_of
from meshwright.train.checkpoint.index import INDEX

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
FORMAT = 1
LARGEST_BYTES = 1 << 30
_OLDER = "resume from an older checkpoint: `--resume` takes the newest that is whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of the folder: its size, and its 128-bit xxh3 in hexadecimal."""

    bytes: int
    xxh3_128: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parameters of one kind of optimizer and what it was told for them."""

    kind: str
    options: dict[str, Any]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All of manifest.json; `facts` is what the run said of itself (`Saver.save`)."""

    format: int = FORMAT
    tool: str  # "meshwright" and its version
    digest: str = ""  # of the manifest itself, taken while this is ""
    step: int  # steps done
    world_size: int  # ranks that wrote it
    facts: dict[str, Any] = field(default_factory=dict)
    optimizers: list[Options] = field(default_factory=list)
    libraries: dict[str, str] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)


def encoded(manifest: Manifest) -> bytes:
    """The only way to write a manifest, its digest set."""
    return _text(replace(manifest, digest=_digest(manifest)))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint; InvalidInput where there is none, or it was changed."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise _wrong(path, "is larger than any manifest")
        text = path.read_bytes()
        found = msgspec.json.decode(text, type=Manifest)
    except FileNotFoundError:
        raise _missing(folder) from None
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(path, f"is no manifest: {error}") from None
    if found.format != FORMAT:
        raise _wrong(path, f"is of format {found.format}; this version reads {FORMAT}")
    if _text(found) != text or _digest(found) != found.digest:
        raise _wrong(path, "was changed after it was written: its digest does not fit")
    for name in found.files:
        if name in (MANIFEST, "", ".", "..") or "/" in name or "\\" in name or "\0" in name:
            raise _wrong(path, f"names the file {name!r}")
    if INDEX not in found.files:
        raise _wrong(path, f"does not name {INDEX}")
    return found


def damage_in(folder: Path, manifest: Manifest, *, part: int = 0, parts: int = 1) -> list[Finding]:
    """Files that are missing, torn or changed; every `parts`-th of them from number `part` on."""
    names = sorted(manifest.files)[part::parts]
    return [found for name in names if (found := _damage(folder / name, manifest.files[name]))]


def _damage(path: Path, told: File) -> Finding | None:
    try:
        size = path.stat().st_size
        if size != told.bytes:
            return _finding(path, f"has {size:,} bytes of {told.bytes:,}: it is torn")
        found = digest_of(path)
    except FileNotFoundError:
        return _finding(path, "is missing")
    except OSError as error:
        return _finding(path, f"cannot be read: {error.strerror or error}")
    if found.xxh3_128 != told.xxh3_128:
        return _finding(path, "was changed after it was written: its digest does not fit")
    return None


def _digest(manifest: Manifest) -> str:
    text = _text(replace(manifest, digest=""))
    return str(need("xxhash", "checking manifest.json").xxh3_128_hexdigest(text))


def _text(manifest: Manifest) -> bytes:
    return (json.dumps(asdict(manifest), sort_keys=True, indent=1) + "\n").encode()


def _missing(folder: Path) -> InvalidInput:
    if folder.is_dir():
        reason = f"holds no {MANIFEST}: it is no finished checkpoint"
        return InvalidInput([Finding(message=reason, file=str(folder), hint=_OLDER)])
    found = Finding(message="is no folder", file=str(folder), hint="name one, as runs/a/step-1000")
    return InvalidInput([found])


def _wrong(path: Path, reason: str) -> InvalidInput:
    return InvalidInput([_finding(path, reason)])


def _finding(path: Path, reason: str) -> Finding:
    return Finding(message=f"{path.name} {reason}", file=str(path), reason=reason, hint=_OLDER)
