"""Whether a folder already holds what a build would make, and taking it out where it may go."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.data.shards.names import MANIFEST, TOKENIZER, WORK, is_ours
from meshwright.data.work.keys import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from meshwright.data.stages.layout import Job

RECORD = ".build.json"  # what the folder is made from, and how long that took


def build_key(job: Job) -> str:
    """What the output of a build depends on: settings, inputs and files that settings name."""
    output = replace(job.build.output, folder="", keep_work=False)
    return digest_of(
        replace(job.build, output=output),
        [[found.path, found.bytes, found.stamp] for found in job.inputs],
        [list(pair) for pair in job.digests],
    )


def is_finished(folder: Path, key: str) -> bool:
    """Whether the folder holds the whole output of the build of that key.

    MeshwrightError when it holds that of another build.
    """
    if not (folder / MANIFEST).exists():
        return False
    if read_record(folder).get("key") != key:
        raise MeshwrightError(
            f"{str(folder)!r} holds the output of other settings or other input",
            hint="name another folder with -o, or replace what is there: --fresh",
        )
    return True


def read_record(folder: Path) -> Mapping[str, Any]:
    """The record of the build that a folder was made by; empty when there is none."""
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Puts the record in place of the one there."""
    part = folder / f".{RECORD}.part"
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(folder / RECORD)


def remove_output(folder: Path, *, work: bool) -> None:
    """Takes out what a build has put into its folder, and nothing else; the manifest goes first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in sorted(folder.iterdir()):
        if path.is_file() and (is_ours(path.name) or path.name == RECORD):
            path.unlink()
    for name in (TOKENIZER, *([WORK] if work else [])):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / name)
