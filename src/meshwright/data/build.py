"""A build from end to end: stages in order, each over its units, on any engine, from any state.

A unit is made when it is not there or was made from something else; so a build that was broken off
goes on where it was, one that is done has nothing to do, and one whose inputs or settings changed
makes again what depends on them.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.data.failures import broken_off
from meshwright.data.finished import build_key, is_finished, remove_output, write_record
from meshwright.data.report import scan_report
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.names import WORK
from meshwright.data.stages.finish import finish
from meshwright.data.stages.layout import Job
from meshwright.data.stages.plan import stages_of
from meshwright.data.stages.rejects import Judge
from meshwright.data.work.digests import digests_of
from meshwright.data.work.engines.choice import engine_of
from meshwright.data.work.lock import locked, wait_for_workers
from meshwright.data.work.progress import Meter
from meshwright.data.work.store import Store

if TYPE_CHECKING:
    from meshwright.data.settings import Build
    from meshwright.data.shards.manifest import Manifest
    from meshwright.data.stages.plan import Stage
    from meshwright.data.work.engines import Engine
    from meshwright.data.work.progress import OnProgress, Progress

UNIT_BYTES = 16 << 20  # of input; the output does not depend on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How a build is run; none of it changes the output."""

    workers: int | None = None  # processes; None = one for each core
    engine: str = "auto"
    fresh: bool = False  # replace what another build left in the folder
    on_progress: OnProgress | None = None


def build(
    settings: Build,
    *,
    workers: int | None = None,
    engine: str = "auto",
    fresh: bool = False,
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Makes the output of `settings` and returns its manifest.

    `workers` processes are used (one for each core by default). Finished units that an earlier run
    left are used; with `fresh` everything in the folder that a build made is removed first. Raises
    InvalidInput for settings or input that cannot be used, and MeshwrightError when the folder
    holds another build's output, is in use, or cannot be written.
    """
    folder = Path(settings.output.folder)
    how = Running(workers=workers, engine=engine, fresh=fresh, on_progress=on_progress)
    try:
        with locked(folder):
            _build(settings, folder, how)
            return read_manifest(folder)
    except OSError as error:
        raise broken_off(error, folder) from error


def _build(settings: Build, folder: Path, how: Running) -> None:
    """The build, once the folder is ours."""
    if how.fresh:
        remove_output(folder, work=True)
    job = plan_job(settings)
    key = build_key(job)
    if is_finished(folder, key):
        _tidy(job, folder)
        return
    wait_for_workers(job.store.root)
    clear_parts(job.store.root)
    write_record(folder, {"key": key})
    started = time.monotonic()
    with engine_of(how.engine, job, how.workers) as running:
        report = run_stages(job, running, how.on_progress or _silent)
    finish(job)
    seconds = round(time.monotonic() - started, 3)
    write_record(folder, {"key": key, "seconds": seconds, **report})
    _tidy(job, folder)


def plan_job(settings: Build) -> Job:
    """What there is to do: the inputs, their units, and the digests of files that settings name."""
    from meshwright.data.source.division import plan_units
    from meshwright.data.source.listing import list_inputs

    inputs = list_inputs(settings.sources)
    return Job(
        build=settings,
        inputs=inputs,
        units=plan_units(inputs, unit_bytes=UNIT_BYTES),
        store=Store(Path(settings.output.folder) / WORK),
        digests=digests_of(settings),
    )


def run_stages(job: Job, engine: Engine, on_progress: OnProgress) -> dict[str, Any]:
    """Runs every stage; what they did, with the seconds that each took."""
    stages = stages_of(job)
    report: dict[str, Any] = {"stages": {}}
    for place, stage in enumerate(stages, start=1):
        meter = Meter(stage.name, on_progress, place=(place, len(stages)))
        run_stage(job, stage, engine, meter)
        report["stages"][stage.name] = meter.facts()
    return report | scan_report(job)


def run_stage(job: Job, stage: Stage, engine: Engine, meter: Meter) -> None:
    """Makes the units of a stage that are not there yet."""
    weights = stage.units(job)
    judge = Judge(job) if stage.name == "scan" else None
    found = [number for number in weights if stage.is_done(job, number)]
    if judge is not None:
        for number in found:
            judge.hear(number)
    meter.begin(weights, found)

    def on_done(number: int, cpu_s: float) -> None:
        if judge is not None:
            judge.hear(number)
        meter.done(number, job.store.record(stage.name, number) or {}, cpu_s=cpu_s)

    there = set(found)
    engine.run(stage.make, [number for number in weights if number not in there], on_done)


def clear_parts(root: Path) -> None:
    """Removes what processes that died were writing."""
    for part in root.glob("*/*.part"):
        shutil.rmtree(part, ignore_errors=True)


def _tidy(job: Job, folder: Path) -> None:
    """Removes the intermediate files of a finished build, unless they are to stay."""
    if not job.build.output.keep_work:
        shutil.rmtree(folder / WORK, ignore_errors=True)


def _silent(_progress: Progress) -> None:
    """Tells nobody."""
