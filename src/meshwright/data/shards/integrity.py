"""Whether the files of a folder are, byte for byte, those that its manifest tells of."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.data.shards.hashed import digest_of
from meshwright.data.shards.names import LOCK, MANIFEST, RECORD, TOKENIZER, WORK, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.data.shards.manifest import File, Manifest

_BESIDE = (RECORD, LOCK, MANIFEST)  # not in the manifest, and not foreign either
REPORT = "the files are as they were written, so this is a fault of meshwright: report it"
_REBUILD = "build it again, or copy the file from where it is whole"


def check_files(
    folder: Path, manifest: Manifest, on_bytes: Callable[[int, int], None]
) -> tuple[list[Finding], frozenset[str]]:
    """Findings on files, and the names of those that are as they were written."""
    findings: list[Finding] = []
    sound: set[str] = set()
    read, total = 0, sum(file.bytes for file in manifest.files.values())
    for name, file in sorted(manifest.files.items()):
        found = _check(folder, name, file)
        findings += found
        if not found:
            sound.add(name)
        read += file.bytes
        on_bytes(read, total)
    return [*findings, *_foreign(folder, manifest)], frozenset(sound)


def _check(folder: Path, name: str, file: File) -> list[Finding]:
    """What is wrong with one file."""
    path = folder / name
    try:
        if (path.parent != folder and path.parent.is_symlink()) or path.is_symlink():
            return [finding(path, "is a link: a build writes none", hint=_REBUILD)]
        if not stat.S_ISREG(path.stat().st_mode):
            return [finding(path, "is no file", hint=_REBUILD)]
        size = path.stat().st_size
        if size < file.bytes:
            missing = f"ends at byte {size:,}; {file.bytes - size:,} bytes are missing"
            return [finding(path, missing, hint=_REBUILD)]
        if size > file.bytes:
            more = (
                f"has {size - file.bytes:,} bytes more than were written, from byte {file.bytes:,}"
            )
            return [finding(path, more, hint=_REBUILD)]
        found = digest_of(path)
    except FileNotFoundError:
        return [finding(path, "is missing", hint=_REBUILD)]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return [finding(path, f"cannot be read: {reason}", hint="see its permissions")]
    if found.xxh3_128 != file.xxh3_128:
        changed = f"was changed: xxh3_128 {found.xxh3_128}, written as {file.xxh3_128}"
        return [finding(path, changed, hint=_REBUILD)]
    return []


def _foreign(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    """Files that the manifest does not tell of."""
    for name in sorted(_listed(folder)):
        if name in manifest.files or name in _BESIDE or name.split("/")[0] == WORK:
            continue
        ours = is_ours(name) or name.startswith(f"{TOKENIZER}/")
        yield finding(
            folder / name,
            "is not in the manifest" + ("" if ours else ": a build did not write it"),
            hint="remove it, or keep it elsewhere",
            severity=Severity.ERROR if ours else Severity.WARNING,
        )


def _listed(folder: Path) -> Iterator[str]:
    """Every entry below the folder that is no folder itself, links not followed."""
    for root, folders, files in os.walk(folder):
        base = Path(root).relative_to(folder)
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in (*files, *links):
            yield (base / name).as_posix()
        if base == Path() and WORK in folders:
            folders.remove(WORK)


def finding(path: Path, message: str, *, hint: str, severity: Severity = Severity.ERROR) -> Finding:
    """Something wrong with a file of the folder."""
    return Finding(message=f"{path.name} {message}", file=str(path), hint=hint, severity=severity)
