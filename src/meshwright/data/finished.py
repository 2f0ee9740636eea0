"""What a folder holds already: finished output, unfinished work, and whether either may go.

Two records tell: `.build.json` beside the manifest, of the output; one of the same name in `.work`,
of the finished units there. Neither output nor work of other settings goes without being asked for.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.data.differences import differences
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.names import MANIFEST, RECORD, SPOOL, TOKENIZER, WORK, is_ours
from meshwright.data.stages.plan import stages_of
from meshwright.data.work.keys import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.plan import Stage

_SHOWN = 3  # damaged files


def build_key(job: Job) -> str:
    """What the output of a build depends on: settings, inputs and files that settings name."""
    output = replace(job.build.output, folder="", keep_work=False)
    return digest_of(
        replace(job.build, output=output),
        [[found.path, found.bytes, found.version] for found in job.inputs],
        [list(pair) for pair in job.digests],
    )


def is_finished(folder: Path, key: str) -> bool:
    """Whether the folder holds the output of the build of that key; its files are not looked at."""
    return read_record(folder).get("key") == key and (folder / MANIFEST).exists()


def is_whole(folder: Path, tell: Callable[[Finding], object]) -> bool:
    """Whether a finished output has all its files, of their sizes; `tell` hears what it lost."""
    damage = damages(folder)
    if damage:
        more = f", and {len(damage) - _SHOWN:,} more" if len(damage) > _SHOWN else ""
        lost = f"{', '.join(damage[:_SHOWN])}{more}: the folder is built again"
        tell(Finding(message=lost, severity=Severity.WARNING, file=str(folder)))
    return not damage


def damages(folder: Path) -> list[str]:
    """Files of a finished folder that are missing or of another size, in words."""
    try:
        manifest = read_manifest(folder)
    except InvalidInput:
        return [f"{MANIFEST} is damaged"]
    found = []
    for name, file in manifest.files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError:
            found.append(f"{name} is missing")
            continue
        if size != file.bytes:
            found.append(f"{name} has {size:,} bytes, not {file.bytes:,}")
    return found


def check_replaceable(job: Job, folder: Path, key: str, *, reuse: bool) -> None:
    """MeshwrightError when this build would throw away another's output or work, unasked."""
    work = read_record(folder / WORK)
    if work.get("key") == key or is_finished(folder, key):
        return
    if (folder / MANIFEST).exists():
        _check_output(job, folder, reuse=reuse, has_work=bool(_units(job, "scan")))
    elif work and not reuse and (stage := _misfit(job)):
        units = f"{len(_units(job, stage)):,} finished units of {stage!r}"
        raise MeshwrightError(
            f"{str(folder)!r} holds an unfinished build ({units}) of other settings or other input"
            f"{differences(work, job)}",
            hint="go on with these, keeping what fits: --reuse; or begin anew: --fresh; "
            "or name another folder with -o",
        )


def _check_output(job: Job, folder: Path, *, reuse: bool, has_work: bool) -> None:
    """The folder holds finished output of another build."""
    if reuse and has_work:
        return
    if reuse:
        raise MeshwrightError(
            f"nothing can be reused: the build in {str(folder)!r} kept no intermediate files",
            hint="replace what is there: --fresh; --keep-work keeps them from then on",
        )
    kept = "make it from the kept work: --reuse; or " if has_work else ""
    raise MeshwrightError(
        f"{str(folder)!r} holds the output of other settings or other input"
        f"{differences(read_record(folder), job)}",
        hint=f"{kept}name another folder with -o, or replace what is there: --fresh",
    )


def _misfit(job: Job) -> str:
    """The first stage with a finished unit that this build would make anew; "" for none."""
    return next((stage.name for stage in stages_of(job) if not _fits(job, stage)), "")


def _fits(job: Job, stage: Stage) -> bool:
    """Whether every finished unit of a stage is one of this build's."""
    found = _units(job, stage.name)
    try:
        return not found or (
            found <= set(stage.units(job)) and all(stage.is_done(job, unit) for unit in found)
        )
    except (OSError, LookupError, ValueError):  # what the key is made from is not there
        return False


def _units(job: Job, stage: str) -> set[int]:
    """The numbers of the finished units of a stage."""
    found = (job.store.root / stage).glob("*/unit.json")
    return {int(path.parent.name) for path in found if path.parent.name.isdecimal()}


def read_record(folder: Path) -> Mapping[str, Any]:
    """The record of the build that a folder was made by; empty when there is none."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Puts the record in place of the one there."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{RECORD}.part"
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(folder / RECORD)


def remove_output(folder: Path) -> None:
    """Takes out what a build has put into its folder, and nothing else; the manifest goes first.

    Standard input that is kept there stays: it cannot be read a second time.
    """
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in sorted(folder.iterdir()):
        if path.is_file() and (is_ours(path.name) or path.name == RECORD):
            path.unlink()
    for path in [folder / TOKENIZER, *(folder / WORK).glob("*")]:
        if path.is_file():
            path.unlink()
        elif path != folder / SPOOL:
            shutil.rmtree(path, ignore_errors=True)
