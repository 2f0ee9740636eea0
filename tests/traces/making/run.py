"""Runs of a `Spec`: played, written as files."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from making.layout import written
from making.machine import Machine, Meeting, run_all
from making.program import train

if TYPE_CHECKING:
    from pathlib import Path

    from making.spec import Spec


@dataclass(frozen=True)
class Run:
    """What was played: each rank's events, and every collective with when its ranks came."""

    machines: tuple[Machine, ...]
    meetings: dict[Any, Meeting]


def simulate(spec: Spec) -> Run:
    """All ranks of a run, to the end."""
    meetings: dict[Any, Meeting] = {}
    machines = tuple(Machine(spec, rank, meetings) for rank in range(spec.world_size))
    run_all(map(train, machines))
    return Run(machines, meetings)


def make_run(spec: Spec) -> list[bytes]:
    """The trace file of each rank, in rank order."""
    texts = [written(spec, machine) for machine in simulate(spec).machines]
    return [gzip.compress(t, 6, mtime=0) for t in texts] if spec.gz else texts


def write_run(spec: Spec, folder: Path) -> list[Path]:
    """The same as files rank0.json, rank1.json, ... (or .json.gz) in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tail = ".json.gz" if spec.gz else ".json"
    paths = []
    for rank, text in enumerate(make_run(spec)):
        paths.append(folder / f"rank{rank}{tail}")
        paths[-1].write_bytes(text)
    return paths
