"""A build from end to end: stages in order, each over its units, on any engine, from any state.

A unit is made when it is not there or was made from something else; so a build that was broken off
goes on where it was, one that is done has nothing to do, and one whose inputs or settings changed
makes again what depends on them.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.data.differences import settings_of
from meshwright.data.failures import broken_off
from meshwright.data.finished import (
    build_key,
    check_replaceable,
    is_finished,
    is_whole,
    read_record,
    remove_output,
    write_record,
)
from meshwright.data.needs import need, need_all
from meshwright.data.outcome import outcome, passed_over
from meshwright.data.ranges import check_build
from meshwright.data.report import scan_report
from meshwright.data.shards.manifest import read_manifest
from meshwright.data.shards.names import MANIFEST, SPOOL, WORK
from meshwright.data.source.unit import UNIT_BYTES
from meshwright.data.stages.finish import finish
from meshwright.data.stages.layout import Job
from meshwright.data.stages.plan import stages_of
from meshwright.data.stages.rejects import Judge
from meshwright.data.work.aside import Aside
from meshwright.data.work.board import Board
from meshwright.data.work.contents import recorded, settled
from meshwright.data.work.digests import digests_of
from meshwright.data.work.engines.array import Array
from meshwright.data.work.engines.choice import engine_of
from meshwright.data.work.engines.inline import Inline
from meshwright.data.work.keys import key_of
from meshwright.data.work.libraries import build_versions
from meshwright.data.work.lock import kept_if_used, locked, wait_for_workers
from meshwright.data.work.part import ALONE, Part, parse_part, part_of_array, run_of_parts
from meshwright.data.work.progress import Meter
from meshwright.data.work.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.data.settings import Build
    from meshwright.data.shards.manifest import Manifest
    from meshwright.data.stages.plan import Stage
    from meshwright.data.work.engines import Engine
    from meshwright.data.work.progress import OnProgress, Progress

    OnFinding = Callable[[Finding], object]

_LIBRARIES = ("orjson", "xxhash", "zstandard", "pyarrow")  # that every build uses
DONE = "already built"  # the reason of the finding that a build with nothing to do gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How a build is run; none of it changes the output."""

    workers: int | None = None  # processes; None = one for each core
    engine: str = "auto"
    part: Part = ALONE
    patience_s: float = 3600.0
    fresh: bool = False  # remove what a build left in the folder first
    reuse: bool = False  # other settings than those of the work in the folder
    on_progress: OnProgress
    on_finding: OnFinding


def build(
    settings: Build,
    *,
    workers: int | None = None,
    engine: str = "auto",
    part: str = "",
    patience_s: float = 3600.0,
    fresh: bool = False,
    reuse: bool = False,
    on_progress: OnProgress | None = None,
    on_finding: OnFinding | None = None,
) -> Manifest:
    """Makes the output of `settings` and returns its manifest.

    `workers` processes are used (one for each core by default). Finished units that an earlier run
    left are used. Finished output of other settings, or unfinished work that does not fit, is
    refused: with `fresh` everything in the folder that a build made is removed first, with `reuse`
    units that fit are kept, and output stays until the new one is complete.

    `part` "3/8" makes the fourth of eight shares and waits for the others, `patience_s` at most for
    one that has not begun; engine "array" takes it from Slurm's environment. Part 0 finishes.
    `on_progress` is called with each new state, `on_finding` with what is odd, and with an error
    where no document is kept.

    Raises InvalidInput for settings or input that cannot be used, and MeshwrightError when the
    folder holds another build's output, is in use, or cannot be written, and when a worker or
    another part is lost.
    """
    need_all(_LIBRARIES, "making shards of text")
    how = Running(
        workers=workers,
        engine=engine,
        part=parse_part(part) if part else part_of_array() if engine == "array" else ALONE,
        patience_s=patience_s,
        fresh=fresh,
        reuse=reuse,
        on_progress=on_progress or _silent,
        on_finding=on_finding or _silent,
    )
    check_build(settings)
    folder = Path(settings.output.folder)
    try:
        alone = how.part.count == 1  # other parts may be about to enter the folder
        with (
            kept_if_used(folder) if alone else contextlib.nullcontext(),
            locked(folder, shared=not alone, tell=how.on_finding),
        ):
            _build(settings, folder, how)
            manifest = read_manifest(folder)
            for finding in outcome(settings, manifest):
                how.on_finding(finding)
            return manifest
    except OSError as error:
        raise broken_off(error, folder) from error


def _build(settings: Build, folder: Path, how: Running) -> None:
    """The build, once the folder is ours."""
    job = plan_job(settings, on_finding=how.on_finding)
    if how.fresh:
        _remove(folder, how)
    known = [read_record(place).get("inputs", []) for place in (folder, folder / WORK)]
    job = settled(job, [entry for inputs in known for entry in inputs])
    key = build_key(job)
    if is_finished(folder, key):
        if is_whole(folder, how.on_finding):
            _say_done(folder, how.on_finding)
            _tidy(job, folder, key)
            return
        _check_alone(folder, how.part)
    check_replaceable(job, folder, key, reuse=how.reuse)
    lock = job.store.root / f"workers-{how.part.number}.lock"
    wait_for_workers(lock)
    clear_parts(job.store.root, how.part)
    if how.part.number == 0:
        write_record(folder / WORK, _record(job, key))
    _make(job, folder, how, key=key, lock=lock)


def _make(job: Job, folder: Path, how: Running, *, key: str, lock: Path) -> None:
    """All stages, and the output from them."""
    started = time.monotonic()
    engine = _engine(job, folder, how, key=key, lock=lock)
    with engine:
        here = isinstance(engine, Inline)
        prepared = Aside(lambda: prepare(job, how.on_finding, here=here))
        if here:
            prepared.wait()
        if isinstance(engine, Array) and how.part.number:
            _make_share(job, engine, how=how, prepared=prepared)
            return
        report = run_stages(job, engine, on_progress=how.on_progress, prepared=prepared)
        for finding in passed_over(report["too_short"]):
            how.on_finding(finding)
        record = _record(job, key, with_content=True)
        (folder / MANIFEST).unlink(missing_ok=True)  # of an earlier build: the record is of this
        write_record(folder, record)
        finish(job)
    seconds = round(time.monotonic() - started, 3)
    write_record(folder, {**record, "seconds": seconds, **report})
    _tidy(job, folder, key)


def _make_share(job: Job, engine: Array, *, how: Running, prepared: Aside) -> None:
    """The units of a part that leaves the output to part 0.

    One that lags behind may find the output made, and the units it was about to look at removed.
    """
    try:
        run_stages(job, engine, on_progress=how.on_progress, prepared=prepared)
    except OSError:
        if not engine.is_finished():
            raise
    engine.wait_for_output()


def _engine(job: Job, folder: Path, how: Running, *, key: str, lock: Path) -> Engine:
    """Who makes the units."""
    engine = engine_of(how.engine, job, how.workers, lock=lock)
    if how.part.count == 1:
        return engine
    agreed = key_of(key, build_versions(job.build))
    patience_s, run = how.patience_s, run_of_parts()
    board = Board(job.store.root / "parts", how.part, agreed, patience_s=patience_s, run=run)
    return Array(job, engine, board, is_finished=lambda: is_finished(folder, key))


def _record(job: Job, key: str, *, with_content: bool = False) -> dict[str, Any]:
    """What a folder is made from, so that a later build can say what is different."""
    return {
        "key": key,
        "settings": settings_of(job.build),
        "digests": job.digests,
        "inputs": recorded(job, with_content=with_content),
    }


def _check_alone(folder: Path, part: Part) -> None:
    """MeshwrightError when several parts find the output damaged: who of them would mend it?"""
    if part.count > 1:
        raise MeshwrightError(
            f"the output in {str(folder)!r} is damaged, and parts cannot tell who mends it",
            hint=f"remove {str(folder / MANIFEST)!r}, then start all parts",
        )


def plan_job(settings: Build, *, on_finding: OnFinding | None = None) -> Job:
    """What there is to do: the inputs, their units, and the digests of files that settings name.

    InvalidInput for input that cannot be used; `on_finding` is told of what is only odd.
    """
    need_all(_LIBRARIES, "making shards of text")
    from meshwright.data.oddities import oddities_of
    from meshwright.data.source.division import plan_units
    from meshwright.data.source.listing import list_inputs

    folder = Path(settings.output.folder)
    inputs = list_inputs(settings.sources, spool=folder / SPOOL, output=folder, tell=on_finding)
    for odd in oddities_of(settings, inputs):
        (on_finding or _silent)(odd)
    return Job(
        build=settings,
        inputs=inputs,
        units=plan_units(inputs, unit_bytes=UNIT_BYTES),
        store=Store(folder / WORK),
        digests=digests_of(settings),
    )


def prepare(job: Job, on_finding: OnFinding, *, here: bool) -> None:
    """Loads the tokenizer, so that a wrong one is refused early, and what `finish` will need.

    `here` says that units are made in this process, which then keeps the tokenizer for them.
    """
    settings = job.build.tokenizer
    if settings is not None:
        from meshwright.data.stages.tokenize import tokenizer_of
        from meshwright.data.tokens.tokenizer import load

        digests = job.digests
        found = tokenizer_of(settings, digests) if here else load(settings, library="reference")
        for remark in found.remarks:
            on_finding(Finding(message=remark, severity=Severity.INFO, file=settings.file))
    need("pyarrow.parquet", "writing documents.parquet")


def run_stages(
    job: Job, engine: Engine, *, on_progress: OnProgress, prepared: Aside
) -> dict[str, Any]:
    """Runs every stage; what they did, with the seconds that each took.

    Ends as soon as `prepared` has failed, and goes beyond the scan only when that is done.
    """
    stages = stages_of(job)
    report: dict[str, Any] = {"stages": {}}
    for place, stage in enumerate(stages, start=1):
        meter = Meter(stage.name, on_progress, place=(place, len(stages)))
        run_stage(job, stage, engine=engine, meter=meter, prepared=prepared)
        prepared.wait()
        report["stages"][stage.name] = meter.facts()
    return report | scan_report(job)


def run_stage(job: Job, stage: Stage, *, engine: Engine, meter: Meter, prepared: Aside) -> None:
    """Makes the units of a stage that are not there yet."""
    weights = stage.units(job)
    judge = Judge(job) if stage.name == "scan" else None
    found = [
        number
        for number in weights
        if stage.is_done(job, number)
        and (stage.name == "emit" or job.store.is_whole(stage.name, number))
    ]
    if judge is not None:
        for number in found:
            judge.hear(number)
    meter.begin(weights, found)

    def on_done(number: int, cpu_s: float) -> None:
        prepared.check()
        if judge is not None:
            judge.hear(number)
        meter.done(number, job.store.record(stage.name, number) or {}, cpu_s=cpu_s)

    there = set(found)
    engine.run(stage, [number for number in weights if number not in there], on_done)


def clear_parts(root: Path, part: Part = ALONE) -> None:
    """Removes what processes of this part that died were writing."""
    for unit in root.glob("*/*.part"):
        number = unit.name.partition(".")[0]
        if not number.isdecimal() or part.has(int(number)):
            shutil.rmtree(unit, ignore_errors=True)


def _remove(folder: Path, how: Running) -> None:
    """Takes out what is there, for a build that starts anew."""
    if how.reuse:
        raise MeshwrightError("--fresh leaves nothing to --reuse", hint="give one of them")
    if how.part.count > 1:
        raise MeshwrightError(
            "a part cannot start anew: the others may be at work",
            hint=f"remove {str(folder)!r}, then start all parts",
        )
    remove_output(folder)


def _say_done(folder: Path, on_finding: OnFinding) -> None:
    """Tells that there is nothing to do."""
    done = "nothing to do: this is the output of these settings and inputs"
    hint = "--fresh makes it again"
    found = Finding(message=done, severity=Severity.INFO, file=str(folder), reason=DONE, hint=hint)
    on_finding(found)


def _tidy(job: Job, folder: Path, key: str) -> None:
    """Removes the intermediate files of a finished build, unless they are to stay."""
    if not job.build.output.keep_work and read_record(folder / WORK).get("key", key) == key:
        shutil.rmtree(folder / WORK, ignore_errors=True)


def _silent(_said: Progress | Finding) -> None:
    """Tells nobody."""
