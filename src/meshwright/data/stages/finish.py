"""Finish: the output folder from finished units; the manifest last.

Broken off at any moment it is simply done again: files of shards are renamed, one by one, out of
their units, everything else is written anew, and without a manifest the folder counts for nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.data.shards.hashed import Written, creating, digest_of, settle
from meshwright.data.shards.manifest import encoded
from meshwright.data.shards.names import CONFIG, MANIFEST, TOKENIZER, is_ours
from meshwright.data.stages.account import Account, write_documents
from meshwright.data.stages.arrange import shards_of
from meshwright.data.stages.emit import run_emit
from meshwright.data.stages.fates import places_of
from meshwright.data.stages.record import manifest_of, settings_text
from meshwright.data.stages.texts import write_texts
from meshwright.data.work.store import flush

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.shards.manifest import Manifest
    from meshwright.data.stages.layout import Job

Files = dict[str, Written]


def finish(job: Job) -> Manifest:
    """Makes the output folder complete and returns its manifest; all stages must be done."""
    folder = Path(job.build.output.folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    flush(folder)
    files = _move_shards(job, folder)
    account, more = _write_tables(job, folder)
    files |= more | _write_settings(job, folder) | _write_tokenizer(job, folder)
    manifest = manifest_of(job, account, files)
    _clear(folder, keep=files)
    with creating(folder / MANIFEST) as file:
        file.write(encoded(manifest))
    flush(folder)
    return manifest


def _move_shards(job: Job, folder: Path) -> Files:
    """Renames the files of all shards into the folder."""
    files: Files = {}
    if job.build.tokenizer is None:
        return files
    for number in range(len(shards_of(job.store))):
        if not _move_shard(job, number, folder):
            run_emit(job, number)
            if not _move_shard(job, number, folder):
                name = str(job.store.folder("emit", number))
                raise MeshwrightError(
                    f"the shard in {name!r} changed while it was moved",
                    hint="see that no other program writes there, and run the build again",
                )
        files |= _written(job, number)
    return files


def _move_shard(job: Job, number: int, folder: Path) -> bool:
    """Renames the files of one shard; False when one is neither in its unit nor in the folder.

    A file that an earlier attempt has moved is read, to be sure that it is the right one.
    """
    for name, written in _written(job, number).items():
        source, target = job.store.folder("emit", number) / name, folder / name
        if source.is_file() and source.stat().st_size == written.bytes:
            source.replace(target)
        elif not target.is_file() or digest_of(target) != written:
            return False
    flush(folder)
    return True


def _written(job: Job, number: int) -> Files:
    """The files of a shard, as its unit recorded them."""
    record: Mapping[str, Any] = job.store.record("emit", number) or {}
    files = record.get("shard", {}).get("files", {})
    return {name: Written(**file) for name, file in files.items()}


def _write_tables(job: Job, folder: Path) -> tuple[Account, Files]:
    """documents.parquet, what could not be read, and the cleaned text where it is wanted."""
    places = places_of(job)
    account, files = write_documents(job, folder, places)
    if job.build.output.text or job.build.tokenizer is None:
        files |= write_texts(job, folder, places)
    return account, files


def _write_settings(job: Job, folder: Path) -> Files:
    with creating(folder / CONFIG) as file:
        file.write(settings_text(job.build).encode())
    return {CONFIG: file.written}


def _write_tokenizer(job: Job, folder: Path) -> Files:
    """A copy of the tokenizer, in a folder that takes its place whole."""
    if job.build.tokenizer is None:
        return {}
    part, final = folder / f"{TOKENIZER}.part", folder / TOKENIZER
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(job.store.folder("arrange", 0) / TOKENIZER, part)
    found = sorted(path for path in part.rglob("*") if path.is_file())
    for path in found:
        settle(path)
    files = {f"{TOKENIZER}/{path.relative_to(part).as_posix()}": digest_of(path) for path in found}
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)
    return files


def _clear(folder: Path, *, keep: Files) -> None:
    """Removes what an earlier build left in the folder and this one did not write."""
    for path in folder.iterdir():
        is_old = is_ours(path.name) and path.name not in keep
        if is_old or (is_ours(path.name.removesuffix(".part")) and path.suffix == ".part"):
            path.unlink(missing_ok=True)
    shutil.rmtree(folder / f"{TOKENIZER}.part", ignore_errors=True)
    if not any(name.startswith(f"{TOKENIZER}/") for name in keep):
        shutil.rmtree(folder / TOKENIZER, ignore_errors=True)
