"""The checkpoints of a run: their names, which of them are whole, which are kept."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import torch.distributed as dist

from meshwright.base.errors import InvalidInput
from meshwright.base.noun import dataclass
from meshwright.train.checkpoint.index import INDEX, read_index
from meshwright.train.checkpoint.manifest import damage_in, read_manifest

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from meshwright.base.finding import Finding

_STEP = re.compile(r"step-(\d{1,15})")
_LEFT = re.compile(r"step-\d{1,15}\.(tmp|gone)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest checkpoint that is whole, None where there is none; `damage` of newer ones."""

    folder: Path | None
    damage: tuple[Finding, ...]


def name_of(step: int) -> str:
    """The folder of a step."""
    return f"step-{step}"


def steps_in(folder: Path) -> list[int]:
    """Steps of finished checkpoints, oldest first; unfinished ones have another name."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(m[1]) for m in map(_STEP.fullmatch, names) if m)


def latest(folder: str | Path, *, group: ProcessGroup | None = None) -> Latest:
    """The newest checkpoint of a run whose every file is as it was written.

    With a process group all its ranks call this; they share the reading, and get one answer.
    """
    damage: list[Finding] = []
    for step in _agreed(steps_in(Path(folder)), group)[::-1]:
        place = Path(folder) / name_of(step)
        found = damage_of(place, group=group)
        if not found:
            return Latest(folder=place, damage=tuple(damage))
        damage += found
    return Latest(folder=None, damage=tuple(damage))


def damage_of(folder: str | Path, *, group: ProcessGroup | None = None) -> list[Finding]:
    """What is wrong with a checkpoint; nothing where it is whole."""
    rank, ranks = (dist.get_rank(group), dist.get_world_size(group)) if group else (0, 1)
    found: list[Finding] = []
    try:
        manifest = read_manifest(Path(folder))
        found = damage_in(Path(folder), manifest, part=rank, parts=ranks)
        if rank == 0 and not found:
            read_index(Path(folder) / INDEX)
    except InvalidInput as error:
        found = list(error.findings)
    if group is None:
        return found
    every: list[list[Finding]] = [[] for _ in range(ranks)]
    dist.all_gather_object(every, found, group=group)
    return list(dict.fromkeys(f for rank_found in every for f in rank_found))


def _agreed(steps: list[int], group: ProcessGroup | None) -> list[int]:
    """What rank 0 sees."""
    if group is None:
        return steps
    seen = [steps]
    dist.broadcast_object_list(seen, group=group, group_src=0)
    return seen[0]


def tidy(folder: Path) -> None:
    """Removes what an interrupted save or removal left."""
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if _LEFT.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def prune(folder: Path, *, newest: int, keep: int, keep_every: int | None) -> list[int]:
    """Removes all but the last `keep` up to `newest` and every `keep_every`-th; the steps removed.

    A folder is renamed first: one that is half removed has the name of no checkpoint. Later steps
    than `newest`, which was just written, are of a run that was given up (damaged, or resumed from
    before them): they are renamed to `.aside`, so that no resume takes them.
    """
    steps = steps_in(folder)
    for step in [s for s in steps if s > newest]:
        _rename(folder / name_of(step), "aside")
    current = [s for s in steps if s <= newest]
    old = current[: max(len(current) - keep, 0)]
    gone = [s for s in old if not (keep_every and s % keep_every == 0)]
    for step in gone:
        shutil.rmtree(_rename(folder / name_of(step), "gone"), ignore_errors=True)
    return gone


def _rename(path: Path, suffix: str) -> Path:
    """Takes the name of a checkpoint from a folder."""
    left = path.with_name(f"{path.name}.{suffix}")
    shutil.rmtree(left, ignore_errors=True)
    return path.rename(left)
