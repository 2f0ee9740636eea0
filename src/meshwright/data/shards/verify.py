"""`meshwright data verify`: whether a folder of shards is what a build wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput
from meshwright.base.noun import dataclass
from meshwright.data.shards.counts import check_documents, check_facts, check_sums
from meshwright.data.shards.folder import Folder
from meshwright.data.shards.integrity import check_files
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.names import DOCUMENTS, ENDS, SAMPLE, SPLITS
from meshwright.data.shards.retokenize import check_tokens
from meshwright.data.shards.structure import check_shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.base.finding import Finding
    from meshwright.data.shards.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was looked at, and what is wrong with it; all is well when nothing is."""

    findings: tuple[Finding, ...]
    files: int = 0
    bytes: int = 0
    shards: int = 0  # whose structure was checked
    encoded_again: int = 0  # documents


def verify(
    folder: Path | str,
    *,
    sample: int = SAMPLE,
    on_bytes: Callable[[int, int], None] | None = None,
) -> Verified:
    """Reads every byte of a folder and holds it to its manifest, and the manifest to itself.

    Finds any byte that was changed, lost or added in any file the manifest tells of, and in the
    manifest. Files that fail are not looked into; of all others the structure is checked too, and
    `sample` documents of each file of saved text are encoded again. Never raises for what the
    folder holds. `on_bytes` hears how many bytes were read, of how many.
    """
    root = Path(folder)
    try:
        manifest = read_manifest(root)
    except InvalidInput as error:
        return Verified(findings=error.findings)
    findings, sound = check_files(root, manifest, on_bytes or _silent)
    findings += check_sums(root, manifest)
    splits = _sound_splits(root, manifest, sound)
    for split in splits.values():
        for number in range(len(split.records)):
            findings += check_shard(split, number)
    encoded_again = 0
    if not findings:
        findings, encoded_again = _look_inside(root, manifest, splits, sample=sample)
    return Verified(
        findings=tuple(findings),
        files=len(manifest.files),
        bytes=sum(file.bytes for file in manifest.files.values()),
        shards=sum(len(split.records) for split in splits.values()),
        encoded_again=encoded_again,
    )


def _look_inside(
    root: Path, manifest: Manifest, splits: dict[str, Folder], *, sample: int
) -> tuple[list[Finding], int]:
    """The tables of a folder all of whose files and shards are sound."""
    findings = check_facts(root, manifest)
    if DOCUMENTS in manifest.files:
        findings += check_documents(root, manifest, splits)
    texts = sorted(name for name in manifest.files if name.startswith("text-"))
    more, compared = check_tokens(root, splits, texts, documents=sample)
    return [*findings, *more], compared


def _sound_splits(root: Path, manifest: Manifest, sound: frozenset[str]) -> dict[str, Folder]:
    """The shards all of whose files are as they were written, by split."""
    if manifest.packed is None or manifest.vocabulary is None:
        return {}
    good = [s for s in manifest.shards if all(f"{s.name}{end}" in sound for end in ENDS)]
    kept = replace(manifest, shards=good)
    return {split: Folder(root, split, kept) for split in SPLITS if kept.of_split(split)}


def _silent(_read: int, _of: int) -> None:
    """Tells nobody."""
