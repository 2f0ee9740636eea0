"""Writing a configuration in another framework's words, with what gets lost on the way."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from meshwright.api.checking import Given, cluster_of, stated
from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.frameworks.launching import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from meshwright.cost.predict import Prediction
    from meshwright.frameworks.framework import Expressed, Framework
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

__all__ = ["Conversion", "again_of", "conversion", "convert_files", "written"]
_REFUSES = "CFG302"  # the target cannot run it
_FULL = "CFG304"  # it runs out of memory there
_INSTEAD = (
    "convert another schedule with `--set schedule=1f1b --set vpp=1`, "
    "or search with `meshwright plan ... --pin schedule=1f1b`"
)
_WIDTHS = ("param_bytes", "grad_bytes", "reduce_bytes", "master_weights", "optimizer_state_bytes")
_HOLD_BATCH = ("seq_len", "global_batch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A configuration in another framework's words.

    `files` maps names to texts, the one to start first; `command` starts it, once what
    `to_state` names is stated. `lost` are findings
    about what the target does not say as the source does: `differences` of the plan, each with what
    it costs, stated settings that are not carried over, and what is left to the program. `refused`
    are reasons why the target cannot run the plan (then `files` is empty). `carried` and `dropped`
    count the settings that are carried over and that are not. `before` and `after` are the
    predictions of the job as it was read and as the written files say it, on the same software
    stack, and `there` as the target's own software runs it, as `check` predicts the files;
    None where model or hardware is not known. `assumed` names what stood in for what the
    source does not state.
    """

    source: str
    target: str
    files: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    to_state: tuple[str, ...] = ()
    carried: int = 0
    dropped: int = 0
    lost: tuple[Finding, ...] = ()
    differences: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    before: Prediction | None = None
    after: Prediction | None = None
    there: Prediction | None = None
    assumed: tuple[str, ...] = ()


def convert_files(
    paths: Sequence[str | Path],
    to: str,
    *,
    to_version: str = "",
    model: str | Path | Model | None = None,
    gpus: str | Path | Cluster | None = None,
    nodes: int | None = None,
    framework: str = "",
    version: str = "",
    sets: Mapping[str, Any] | None = None,
) -> Conversion:
    """The configuration in `paths` (files that belong together) in the words of framework `to`.

    Raises UnknownName for a framework that is none, MeshwrightError for one that cannot be
    written, InvalidInput for files that cannot be read or that are several configurations.
    """
    from meshwright.frameworks.framework import framework as by_name
    from meshwright.frameworks.jobs import draft
    from meshwright.frameworks.read import read_files

    target = by_name(to)
    given = Given(
        model=model, gpus=gpus, nodes=nodes, framework=framework, version=version, sets=sets or {}
    )
    readings = read_files(paths, framework=framework, version=version)
    if len(readings) != 1:
        names = ", ".join(r.config.sources[0].file for r in readings)
        raise MeshwrightError(
            f"these are {len(readings)} configurations: {names}", hint="convert one at a time"
        )
    reading, known = stated(readings[0], given)
    drafted = draft(reading, model=known, cluster=cluster_of(reading, given))
    return conversion(reading, drafted, target, to_version)


def _same_version(reading: Reading, target: Framework) -> str:
    """The source's version, where it is written again in the same framework."""
    config = reading.config
    return config.version if config.framework.name == target.name else ""


def conversion(
    reading: Reading, drafted: Drafted, target: Framework, version: str = ""
) -> Conversion:
    """The conversion of a drafted job; MeshwrightError for a framework that is only read."""
    from meshwright.api.adapted import with_adapted
    from meshwright.api.carried import with_the_rest, without_guesses

    version = version or _same_version(reading, target)
    if target.express is None:
        raise MeshwrightError(f"{target.name} is read, not written", hint="try another framework")
    expressed = target.express(_fitting(drafted.job, target), version)
    if expressed.refused:
        return Conversion(
            source=reading.config.framework.name,
            target=target.name,
            refused=tuple(
                _refusal(reading, name, why, target) for name, why in expressed.refused.items()
            ),
            assumed=drafted.missing,
        )
    expressed = without_guesses(reading, drafted.job, expressed)
    expressed = with_adapted(reading, drafted.job, expressed, target)
    asked = version or _version_written(target, expressed)
    expressed = with_the_rest(reading, _fitting(drafted.job, target), expressed, target, asked)
    return _told(reading, drafted, target, version, expressed)


def _version_written(target: Framework, expressed: Expressed) -> str:
    """The version that what was written betrays, "" where it may be any."""
    from meshwright.frameworks.read import read_files

    files = written(target, expressed)
    main, *others = files
    if target.version_of is None or others:
        return ""
    (again,) = read_files([main], framework=target.name, texts=files)
    return again.config.version


def _fitting(job: Job, target: Framework) -> Job:
    """The job with the name of its model, and without what only the source's launcher reads."""
    from meshwright.api.carried import NAMELESS
    from meshwright.frameworks.launching import fitting_environment
    from meshwright.model.catalogue import preset_of_shape

    runtime, model = job.workload.runtime, job.model
    kept = tuple(fitting_environment(dict(runtime.environment), target).items())
    if kept != runtime.environment:
        runtime = replace(runtime, environment=kept)
        job = replace(job, workload=replace(job.workload, runtime=runtime))
    if model.name != NAMELESS:
        return job
    return replace(job, model=replace(model, name=preset_of_shape(model) or NAMELESS))


def _told(
    reading: Reading, drafted: Drafted, target: Framework, version: str, expressed: Expressed
) -> Conversion:
    """What was written, and how it differs from what was read."""
    from meshwright.api.adapted import adapted_variables
    from meshwright.api.assumed import assumed_findings
    from meshwright.api.carried import left_behind
    from meshwright.api.changed import change_finding, changes
    from meshwright.api.dropped import (
        batch_findings,
        bearing_finding,
        checkpoint_findings,
        plain_finding,
        program_finding,
    )
    from meshwright.frameworks.launching import command_of

    files = written(target, expressed)
    again, left = _read_again(files, drafted.job, target, version)
    after = _job_again(again, drafted.job)
    before, then = _predictions(drafted, after)
    reasons = dict(expressed.lost)
    found = changes(drafted.job, after, own=before)
    differences = tuple(change_finding(c, reading, reasons) for c in found)
    names = {name for c in found for name in c.fields}
    said = adapted_variables(reading, drafted.job, expressed, target)
    loaded = checkpoint_findings(reading, again, target)
    bearing, plain, carried = left_behind(
        reading,
        again,
        (drafted.job, after),
        changed=names,
        but={*left, *said, *(("ckpt_load",) if loaded else ())},
    )
    lost = [*differences]
    unusual = _unusual(left)
    lost += [program_finding(unusual, target)] if unusual else []
    lost += [bearing_finding(s, target) for s in bearing]
    lost += _left_out(drafted.job, expressed, target)
    lost += [plain_finding(plain, target)] if plain else []
    lost += [*loaded, *batch_findings(reading)]
    lost += assumed_findings(drafted, again)
    there = _prediction_there(then, _with_own_stack(again, after))
    lost += _overflow(before, then, there, drafted.job, target)
    return Conversion(
        source=reading.config.framework.name,
        target=target.name,
        files=files,
        command=command_of(target, expressed, files),
        to_state=_to_state(reading, expressed, target),
        carried=carried + len(said),
        dropped=len(bearing) + len(plain) + len(loaded),
        lost=tuple(lost),
        differences=differences,
        before=before,
        after=then,
        there=there,
        assumed=drafted.missing,
    )


def _to_state(reading: Reading, expressed: Expressed, target: Framework) -> tuple[str, ...]:
    """What is missing to start, and what of the model neither source nor preset says."""
    from meshwright.frameworks.launching import to_state, unknown_of

    missing = to_state(target, expressed.settings)
    if target.name != "megatron-lm" or reading.config.framework.name in (
        "megatron-lm",
        "mindspeed",
    ):
        return missing
    return missing + unknown_of(expressed.settings)


def _left_out(job: Job, expressed: Expressed, target: Framework) -> list[Finding]:
    """A finding for an environment variable that another way of sharding would suffer from."""
    from meshwright.frameworks.launching import QUEUES

    stated = dict(job.workload.runtime.environment).get(QUEUES)
    if stated is None or QUEUES in (expressed.launch.get("environment") or {}):
        return []
    message = f"{QUEUES}={stated} is left out: {target.title} wants several hardware queues"
    return [
        Finding(
            code="CFG301",
            severity=Severity.INFO,
            message=message,
            key=QUEUES,
            value=stated,
            reason="one queue keeps FSDP's gathers from running beside the products",
        )
    ]


def _read_again(
    files: Mapping[str, str], job: Job, target: Framework, version: str
) -> tuple[Reading, dict[str, Any]]:
    """The reading of the written files, and what the program must be told beside them."""
    from meshwright.frameworks.read import read_files
    from meshwright.frameworks.setting import Value

    main, *others = files
    beside = [name for name in others if name.endswith(".yaml")]
    named = target.name if not beside else ""
    (again,) = read_files([main, *beside], framework=named, version=version, texts=files)
    left = {
        name: value
        for name, value in _of_program(job, target).items()
        if (name in _WIDTHS or not again.is_stated(name)) and again.value(name) != value
    }
    return again.with_values({n: Value(value=v) for n, v in left.items()}), left


def _of_program(job: Job, target: Framework) -> dict[str, Any]:
    """What the program around a framework decides, as the job has it."""
    from meshwright.frameworks.inverse import idle_fields
    from meshwright.plan.words import FIELDS, word

    plan: Plan = job.plan.row(0)
    names = {*target.leaves} - idle_fields(plan)
    if plan.lora_rank and "lora_rank" in names:
        names |= {*_WIDTHS}
    held = {n: word(n, getattr(plan, n)) for n in FIELDS if n in names}
    return {n: getattr(job.workload, n) for n in _HOLD_BATCH if n in names} | held


def again_of(files: Mapping[str, str], job: Job, target: Framework, version: str = "") -> Reading:
    """The reading of written files, with what the program around them is told of the job."""
    return _read_again(files, job, target, version)[0]


def _unusual(left: Mapping[str, Any]) -> dict[str, Any]:
    """What a program would not do of its own accord."""
    from meshwright.plan.words import FIELDS, word

    return {
        name: value
        for name, value in left.items()
        if name not in FIELDS or name == "micro_batch_size" or value != word(name, FIELDS[name])
    }


def _job_again(again: Reading, job: Job) -> Job:
    """The job of what was written, for the same model on the same machine."""
    from meshwright.frameworks.jobs import draft

    after = draft(again, model=job.model, cluster=job.cluster).job
    return replace(after, stack=job.stack)


def _predictions(drafted: Drafted, after: Job) -> tuple[Prediction | None, Prediction | None]:
    """What the job costs as it was read, and as the written files say it, on the same stack."""
    from meshwright.cost.predict import predict

    if not (drafted.is_whole and drafted.is_sized):
        return None, None
    return predict(drafted.job), predict(after)


def _with_own_stack(again: Reading, after: Job) -> Job:
    """The job as it is run by the target's own software, not by the source's."""
    from meshwright.frameworks.jobs import draft

    return replace(after, stack=draft(again, model=after.model, cluster=after.cluster).job.stack)


def _prediction_there(after: Prediction | None, own: Job) -> Prediction | None:
    """What the written files cost on the target's own software."""
    from meshwright.cost.predict import predict

    return None if after is None else predict(own)


def _overflow(
    before: Prediction | None,
    after: Prediction | None,
    there: Prediction | None,
    job: Job,
    target: Framework,
) -> list[Finding]:
    """A finding if what fitted before does not fit afterwards, by either software's habits."""
    from meshwright.base.units import GIB

    if before is None or after is None or there is None:
        return []
    room = job.cluster.gpu.memory_bytes
    peak = max(float(after.peak_bytes), float(there.peak_bytes))
    if before.peak_bytes > room or peak <= room:
        return []
    return [
        Finding(
            code=_FULL,
            severity=Severity.WARNING,
            message=f"{peak / GIB:.1f} GiB in {target.title} do not fit on a GPU of "
            f"{room / GIB:.1f} GiB, {before.peak_bytes / GIB:.1f} GiB did",
            confidence="predicted",
            hint="run `meshwright plan` for a plan that fits there",
        )
    ]


def _refusal(reading: Reading, name: str, why: str, target: Framework) -> Finding:
    """Why the target cannot run the plan, at the setting that states what it cannot."""
    value = reading.value(name)
    said = name if value is None else f"{name} = {shown(value)}"
    found = Finding(
        code=_REFUSES,
        message=f"{target.title} cannot run {said}: {why}",
        key=name,
        value=value,
        hint=_INSTEAD if name in ("schedule", "vpp") else "",
    )
    settings = reading.settings_of(name)
    if not settings:
        return found
    mark = settings[0].label("here")
    return found.replace(file=mark.file, line=mark.line, column=mark.column, labels=(mark,))
